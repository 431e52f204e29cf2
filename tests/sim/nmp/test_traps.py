"""Every way a program can go wrong: the trap's code, place and message."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

from tests.sim.nmp.programs import (
    BASE,
    CONV,
    DATA,
    DRAM_BYTES,
    EXIT,
    dma,
    mac,
    read,
    run,
    segments,
    signal,
    simulator,
    small_machine,
    spin,
    transfer,
    wait,
)
from tvm_npu.sim.errors import SimError
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.simulator import NmpSimulator
from tvm_npu.sim.nmp.traps import TrapCode
from tvm_npu.sim.nmp.xnmp import NMP_ISA
from tvm_npu.sim.traps import Trap


def trapped(text: str, machine: NmpMachine | None = None, **options: Any) -> Trap:
    with pytest.raises(Trap) as caught:
        run(text, machine, **options)
    return caught.value


BOX = {
    "CHANNELS": 4, "ROWS": 8, "COLUMNS": 8, "CHANNEL_STRIDE": 128, "ROW_STRIDE": 16,
    "START_CHANNEL": 0, "START_ROW": 0, "START_COLUMN": 0, "BOX_CHANNELS": 2, "BOX_ROWS": 3,
    "BOX_COLUMNS": 4, "FILL": 0, "ELEMENT_BYTES": 2,
}  # fmt: skip


def test_place_is_complete_and_simulator_stays_usable() -> None:
    """Core, pc, instruction, layer and tile of a trap; the next run starts afresh."""
    text = "li s4, 6\nli s5, -2\nli t1, 2\nlw t2, 0(a5)\nbne a0, t1, done\nebreak\ndone: " + EXIT
    code = assemble(text, BASE, isa=NMP_ISA)
    found = NmpSimulator(
        small_machine(1, 3), code, BASE, DRAM_BYTES,
        layer_names=("first", "second"),
        layer_of=np.array([0] * 4 + [1] * (len(code) - 4), np.int32),
        tile_registers=[{"n": 20, "row": 21}] * len(code),
    )  # fmt: skip
    for _ in range(2):
        with pytest.raises(Trap) as caught:
            found.run(BASE, {15: DATA})
        trap = caught.value
        assert (trap.code, trap.place.unit) == (TrapCode.BREAKPOINT, "core 2")
        assert (trap.place.index, trap.place.address) == (5, BASE + 20)
        assert (trap.place.instruction, trap.place.layer, trap.place.tile) == (
            "ebreak", "second", {"n": 6, "row": -2},
        )  # fmt: skip
        assert str(trap) == (
            f"core 2 at {BASE + 20:#x} (ebreak) in layer 'second' tile n=6, row=-2: ebreak"
        )
        assert found.run(BASE, {15: DATA}, cores=2)[1] == [0, 0]
    with pytest.raises(Trap, match=r"core 0 .*lw t2, 0\(a5\).* in layer 'first'.*at 0x10"):
        found.run(BASE, {15: 16})
    copy = pickle.loads(pickle.dumps(trap))
    assert str(copy) == str(trap)


def test_an_operation_with_an_undefined_variant() -> None:
    operation = "nmp_pool 1, 3"
    trap = trapped(mac(**CONV) + f"{operation}\n" + EXIT)
    assert trap.code == TrapCode.ILLEGAL_INSTRUCTION and trap.place.instruction == operation


@pytest.mark.parametrize("word", [0, 0xFFFF_FFFF, 0x0000_0001, 0x3000_1073])
def test_illegal_instruction(word: int) -> None:
    trap = trapped(f"nop\n.word {word}\n" + EXIT)
    assert trap.code == TrapCode.ILLEGAL_INSTRUCTION and trap.place.address == BASE + 4
    assert f"illegal instruction {word:#010x}" in str(trap) and ".word" in trap.place.instruction


def test_pc_leaves_the_code() -> None:
    trap = trapped("nop\n")
    assert (trap.code, trap.place.address) == (TrapCode.PC_OUTSIDE_CODE, BASE + 4)
    assert f"({BASE:#x}..{BASE + 4:#x})" in str(trap)
    trap = trapped("nop\nli t0, 0x1000\njalr ra, 0(t0)\n" + EXIT)
    assert (trap.code, trap.place.address) == (TrapCode.PC_OUTSIDE_CODE, 0x1000)
    assert f"reached from {BASE + 8:#x} (jalr ra, 0(t0))" in str(trap)
    trap = trapped(f"li t0, {BASE + 2}\njalr ra, 0(t0)\n" + EXIT)
    assert (trap.code, trap.place.address) == (TrapCode.PC_OUTSIDE_CODE, BASE + 2)
    with pytest.raises(Trap) as caught:
        simulator(EXIT).run(BASE - 4)
    assert caught.value.place.address == BASE - 4 and "reached" not in str(caught.value)


def test_layer_of_the_jump_that_left_the_code() -> None:
    code = assemble("li t0, 0\njalr ra, 0(t0)\n", BASE, isa=NMP_ISA)
    found = NmpSimulator(
        small_machine(), code, BASE, DRAM_BYTES,
        layer_names=("one",), layer_of=np.zeros(len(code), np.int32),
        tile_registers=[{"m": 5}] * len(code),
    )  # fmt: skip
    with pytest.raises(Trap) as caught:
        found.run(BASE)
    assert caught.value.place.layer == "one" and caught.value.place.tile == {"m": 0}


def test_ecall_and_ebreak() -> None:
    trap = trapped("li a7, 64\necall")
    assert trap.code == TrapCode.UNKNOWN_ECALL and "ecall with a7 = 64" in str(trap)
    assert trapped("ebreak").code == TrapCode.BREAKPOINT


def test_runaway() -> None:
    trap = trapped("loop: j loop", budget=1000)
    assert trap.code == TrapCode.RUNAWAY and "still running after 1000 instructions" in str(trap)
    trap = trapped("loop: j loop", small_machine(2, 2), budget=1000, timing=False)
    assert trap.code == TrapCode.RUNAWAY


def conv(sub: str = "zero", **changes: int) -> str:
    return mac(**{**CONV, **changes}) + f"nmp_conv2d 1, {sub}\n" + wait(1) + EXIT


@pytest.mark.parametrize(
    ("sub", "changes", "memory", "begin", "end", "size"),
    [
        ("zero", {"IN_ADDRESS": 512 - 286}, "MB0", 226, 514, 512),
        ("zero", {"IN_ADDRESS": -2}, "MB0", -2, 286, 512),
        ("zero", {"W_ADDRESS": 1024 - 574}, "MB1", 450, 1026, 1024),
        ("zero", {"W_PITCH": 64}, "MB1", 0, 968, 960),
        ("zero", {"OUT_ADDRESS": 1}, "MB2", 2, 258, 256),
        ("zero", {"OUT_ADDRESS": -1}, "MB2", -2, 254, 256),
        ("bias", {"BIAS_ADDRESS": 9}, "the bias buffer", 36, 68, 64),
        ("bias", {"BIAS_ADDRESS": -1}, "the bias buffer", -4, 28, 64),
        ("filter", {"BIAS_ADDRESS": 9}, "the bias buffer", 36, 68, 64),
    ],
)
def test_mac_tile_larger_than_its_buffer(
    sub: str, changes: dict[str, int], memory: str, begin: int, end: int, size: int
) -> None:
    mb1 = size if memory == "MB1" else 2048
    machine = small_machine(
        memories={"mb0_bytes": 512, "mb1_bytes": mb1, "mb2_bytes": 256, "bias_bytes": 64}
    )
    run(conv("bias"), machine)
    trap = trapped(conv(sub, **changes), machine)
    assert trap.code == TrapCode.TILE_TOO_LARGE and trap.place.instruction.startswith("nmp_conv2d")
    assert f"bytes {begin}..{end} of {memory}, which has {size}" in str(trap)


@pytest.mark.parametrize(
    "instruction", ["nmp_conv2d 1, filter", "nmp_veopf 1", "nmp_activationf 1"]
)
def test_filter_words_on_a_machine_without(instruction: str) -> None:
    values = {**CONV, "SHIFT": 1, "SHIFT_A": 0, "SHIFT_B": 0, "LOW": -9, "HIGH": 9}
    text = mac(**values) + f"{instruction}\n" + wait(1) + EXIT
    run(text, small_machine())
    mac_values = {**small_machine().mac.model_dump(), "requantization": "tensor"}
    trap = trapped(text, small_machine(mac=mac_values))
    assert trap.code == TrapCode.ILLEGAL_INSTRUCTION


def test_a_filter_shift_that_is_too_large() -> None:
    words = f"li t0, {0x2000_0000}\nli t1, -1\nsw t1, 0(t0)\n"
    values = {**CONV, "OUT_CHANNELS": 1, "SHIFT_A": 0, "SHIFT_B": 0}
    trap = trapped(words + mac(**values) + "nmp_veopf 1\n" + wait(1) + EXIT)
    assert trap.code == TrapCode.BAD_CONFIGURATION and "63" in str(trap)


WINDOW = {k: v for k, v in CONV.items() if k not in ("W_ADDRESS", "W_PITCH", "GROUPS")}
OPERATIONS = {
    "nmp_percept 1, bias": {**CONV, "IN_CHANNELS": 20, "W_PITCH": 20},
    "nmp_pool 1, max": {**WINDOW, "OUT_CHANNELS": 4},
    "nmp_veop 1, add": {
        "ELEMENT_BYTES": 1, "IN_ADDRESS": 0, "W_ADDRESS": 0, "OUT_ADDRESS": 0, "OUT_CHANNELS": 2,
        "OUT_ROWS": 4, "OUT_COLUMNS": 4, "SHIFT_A": 0, "SHIFT_B": 0,
    },
    "nmp_activation 1": {
        "ELEMENT_BYTES": 2, "OUT_ADDRESS": 0, "OUT_CHANNELS": 2, "OUT_ROWS": 4, "OUT_COLUMNS": 4,
        "SHIFT": 3, "LOW": -9, "HIGH": 9,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "changes", "memory"),
    [
        ("nmp_percept 1, bias", {"IN_ADDRESS": 8180}, "MB0"),
        ("nmp_percept 1, bias", {"W_ADDRESS": 8180}, "MB1"),
        ("nmp_percept 1, bias", {"OUT_ADDRESS": 4090}, "MB2"),
        ("nmp_percept 1, bias", {"BIAS_ADDRESS": 1020}, "the bias buffer"),
        ("nmp_pool 1, max", {"IN_ADDRESS": 8180}, "MB0"),
        ("nmp_pool 1, max", {"OUT_ADDRESS": 4090}, "MB2"),
        ("nmp_veop 1, add", {"IN_ADDRESS": 8180}, "MB0"),
        ("nmp_veop 1, add", {"W_ADDRESS": 8180}, "MB1"),
        ("nmp_veop 1, add", {"OUT_ADDRESS": 8180}, "MB2"),
        ("nmp_activation 1", {"OUT_ADDRESS": 4090}, "MB2"),
    ],
)
def test_other_operations_check_their_tiles(
    operation: str, changes: dict[str, int], memory: str
) -> None:
    run(mac(**OPERATIONS[operation]) + f"{operation}\n" + wait(1) + EXIT)
    trap = trapped(mac(**{**OPERATIONS[operation], **changes}) + f"{operation}\n" + EXIT)
    assert trap.code == TrapCode.TILE_TOO_LARGE and f"of {memory}, which has" in str(trap)


BAD_CONV = [
    *[(name, 0) for name in CONV if not name.endswith(("ADDRESS", "PITCH"))],
    *[(name, -1) for name in CONV if not name.endswith("ADDRESS")],
    ("ELEMENT_BYTES", 3), ("GROUPS", 3), ("IN_ROWS", 5), ("IN_COLUMNS", 5), ("OUT_ROWS", 5),
    ("STRIDE_ROWS", 2), ("DILATION_COLUMNS", 2), ("IN_CHANNELS", 1 << 21), ("IN_ADDRESS", 1),
    ("W_ADDRESS", 3), ("W_PITCH", 35), ("W_PITCH", 0), ("OUT_CHANNELS", 0x7FFF_FFFF),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD_CONV)
def test_bad_convolution_registers(name: str, value: int) -> None:
    trap = trapped(conv(**{name: value}))
    assert trap.code == TrapCode.BAD_CONFIGURATION
    # a window that does not fit is reported at the input it does not fit in
    if value > 0:
        reported = {"OUT_ROWS": "IN_ROWS", "STRIDE_ROWS": "IN_ROWS"}
        name = {**reported, "DILATION_COLUMNS": "IN_COLUMNS"}.get(name, name)
    assert f"MAC register {name} has the unusable value" in str(trap)


@pytest.mark.parametrize(
    "changes",
    [
        {"IN_CHANNELS": 1 << 20, "IN_ROWS": 1 << 20, "IN_COLUMNS": 1 << 20},
        {"IN_CHANNELS": 1 << 20, "IN_ROWS": 1 << 20, "IN_COLUMNS": 1 << 20, "GROUPS": 16,
         "OUT_CHANNELS": 16},
        {"OUT_CHANNELS": 1 << 20, "W_PITCH": 0x7FFF_FFFF, "OUT_ROWS": 1, "OUT_COLUMNS": 1},
    ],
)  # fmt: skip
def test_sizes_that_overflow_64_bits_do_not_pass(changes: dict[str, int]) -> None:
    assert trapped(conv(**changes)).code == TrapCode.TILE_TOO_LARGE


@pytest.mark.parametrize(
    ("operation", "name", "value"),
    [
        ("nmp_percept 1, bias", "IN_CHANNELS", 0),
        ("nmp_percept 1, bias", "OUT_CHANNELS", 0),
        ("nmp_percept 1, bias", "ELEMENT_BYTES", 3),
        ("nmp_percept 1, bias", "W_PITCH", -1),
        ("nmp_pool 1, max", "OUT_CHANNELS", 0),
        ("nmp_pool 1, max", "KERNEL_ROWS", 0),
        ("nmp_pool 1, max", "DILATION_ROWS", 2),
        ("nmp_pool 1, average", "COUNT_ROW_END", 0),
        ("nmp_veop 1, add", "OUT_ROWS", 0),
        ("nmp_veop 1, add", "SHIFT_A", 48),
        ("nmp_veop 1, add", "SHIFT_B", -1),
        ("nmp_veop 1, add", "ELEMENT_BYTES", 0),
        ("nmp_activation 1", "SHIFT", 63),
        ("nmp_activation 1", "SHIFT", -48),
        ("nmp_activation 1", "OUT_CHANNELS", -1),
        ("nmp_activation 1", "ELEMENT_BYTES", 4),
    ],
)
def test_bad_registers_of_other_operations(operation: str, name: str, value: int) -> None:
    registers = OPERATIONS.get(operation, OPERATIONS["nmp_pool 1, max"])
    trap = trapped(mac(**{**registers, name: value}) + f"{operation}\n" + EXIT)
    assert trap.code == TrapCode.BAD_CONFIGURATION, str(trap)
    assert f"MAC register {name} has the unusable value {value}" in str(trap)


def box(mnemonic: str = "nmp_load3d", memory: str = "mb0", address: int = DATA, offset: int = 0,
        **changes: int) -> str:  # fmt: skip
    return dma(**{**BOX, **changes}) + transfer(mnemonic, 1, memory, address, offset) + wait(1)


def test_transfers_outside_dram() -> None:
    end = BASE + DRAM_BYTES
    for mnemonic, memory in (("nmp_load", "mb1"), ("nmp_mload", "mb0"), ("nmp_store", "mb2")):
        run(segments(64) + transfer(mnemonic, 1, memory, end - 64) + wait(1) + EXIT)
        trap = trapped(segments(64) + transfer(mnemonic, 1, memory, end - 63) + EXIT)
        assert trap.code == TrapCode.DRAM_ACCESS and trap.place.instruction.startswith(mnemonic)
        assert f"from {end - 63:#x} to {end + 1:#x}" in str(trap)
    trap = trapped(segments(64) + transfer("nmp_load", 1, "mb0", BASE - 4) + EXIT)
    assert trap.code == TrapCode.DRAM_ACCESS
    trap = trapped(segments(8, 3, 1 << 17) + transfer("nmp_load", 1, "mb0", BASE) + EXIT)
    assert trap.code == TrapCode.DRAM_ACCESS
    for mnemonic, memory in (("nmp_load3d", "mb0"), ("nmp_store3d", "mb2")):
        # the last byte of the box: 1 channel, 2 rows and 4 elements on
        reach = 128 + 2 * 16 + 4 * 2
        run(box(mnemonic, memory, end - reach) + EXIT)
        assert trapped(box(mnemonic, memory, end - reach + 2)).code == TrapCode.DRAM_ACCESS
        # elements outside the tensor are not accessed
        run(box(mnemonic, memory, end - reach, START_ROW=-1, BOX_ROWS=4) + EXIT)


def test_transfers_into_too_small_a_buffer() -> None:
    machine = small_machine(
        memories={"mb0_bytes": 128, "mb1_bytes": 192, "mb2_bytes": 256, "bias_bytes": 64}
    )
    sizes = {"mb0": 128, "mb1": 192, "bias": 64}
    for memory, size in sizes.items():
        run(segments(size) + transfer("nmp_load", 1, memory, DATA) + wait(1) + EXIT, machine)
        for offset, length in ((0, size + 1), (1, size), (-1, 4)):
            text = segments(length) + transfer("nmp_load", 1, memory, DATA, offset)
            trap = trapped(text, machine)
            name = {"bias": "the bias buffer"}.get(memory, memory.upper())
            assert trap.code == TrapCode.TILE_TOO_LARGE
            assert f"bytes {offset}..{offset + length} of {name}, which has {size}" in str(trap)
    # MB2 is addressed in elements: 128 of int16
    text = segments(2, element_bytes=2) + transfer("nmp_store", 1, "mb2", DATA, 127)
    run(text + wait(1) + EXIT, machine)
    text = segments(2, element_bytes=2) + transfer("nmp_store", 1, "mb2", DATA, 128)
    trap = trapped(text, machine)
    assert "bytes 256..258 of MB2, which has 256" in str(trap)
    assert trapped(box(BOX_CHANNELS=6), machine).code == TrapCode.TILE_TOO_LARGE
    assert trapped(box(BOX_CHANNELS=1 << 20, BOX_ROWS=1 << 20, BOX_COLUMNS=1 << 20), machine).code \
        == TrapCode.TILE_TOO_LARGE  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"ELEMENT_BYTES": 3}, "ELEMENT_BYTES"), ({"ELEMENT_BYTES": 0}, "ELEMENT_BYTES"),
        ({"CHANNELS": -1}, "CHANNELS"), ({"ROW_STRIDE": -16}, "ROW_STRIDE"),
        ({"BOX_ROWS": -1}, "BOX_ROWS"), ({"BOX_COLUMNS": 1 << 21}, "BOX_COLUMNS"),
        ({"ROW_STRIDE": 15}, "ROW_STRIDE"), ({"CHANNEL_STRIDE": 127}, "CHANNEL_STRIDE"),
    ],
)  # fmt: skip
def test_bad_box_registers(changes: dict[str, int], name: str) -> None:
    trap = trapped(box(**changes))
    assert trap.code == TrapCode.BAD_CONFIGURATION
    assert f"DMA register {name} has the unusable value" in str(trap)


def test_bad_segment_registers() -> None:
    text = segments(-1) + transfer("nmp_load", 1, "mb0", DATA)
    assert "DMA register SEGMENT_BYTES has the unusable value -1" in str(trapped(text))
    text = segments(4, 2, 5, 2) + transfer("nmp_load", 1, "mb0", DATA)
    assert "DMA register SEGMENT_STRIDE has the unusable value 5" in str(trapped(text))
    text = segments(3, 1, 0, 2) + transfer("nmp_store", 1, "mb2", DATA)
    assert "DMA register SEGMENT_BYTES has the unusable value 3" in str(trapped(text))


def test_misaligned_transfers() -> None:
    trap = trapped(box(address=DATA + 1))
    assert trap.code == TrapCode.MISALIGNED_ACCESS and f"2 bytes at {DATA + 1:#x}" in str(trap)
    trap = trapped(box(offset=3))
    assert trap.code == TrapCode.MISALIGNED_ACCESS and "2 bytes at 0x3" in str(trap)


@pytest.mark.parametrize(
    ("mnemonic", "memory"), [("nmp_load", "mb2"), ("nmp_mload", "mb2"), ("nmp_store", "mb0"),
                             ("nmp_store", "bias")],
)  # fmt: skip
def test_wrong_memory(mnemonic: str, memory: str) -> None:
    trap = trapped(segments(4) + transfer(mnemonic, 1, memory, DATA))
    name = {"bias": "the bias buffer"}.get(memory, memory.upper())
    assert trap.code == TrapCode.WRONG_MEMORY and name in str(trap)


def test_empty_transfers_move_nothing_and_end() -> None:
    """Also with huge other extents."""
    for text in (
        segments(0, 1 << 28) + transfer("nmp_load", 1, "mb0", DATA),
        segments(0, 1 << 28) + transfer("nmp_store", 1, "mb2", DATA),
        segments(1 << 28, 0) + transfer("nmp_load", 1, "mb0", DATA),
        box(BOX_CHANNELS=1 << 20, BOX_ROWS=1 << 20, BOX_COLUMNS=0),
        box("nmp_store3d", "mb2", BOX_CHANNELS=1 << 20, BOX_ROWS=1 << 20, BOX_COLUMNS=0),
    ):
        if "nmp_wait" not in text:
            text += wait(1)
        found, _ = run(text + EXIT, data={DATA: np.full(64, 7, np.uint8)})
        assert (read(found, DATA, 64, np.uint8) == 7).all()


def test_accumulator_overflow() -> None:
    """2**31 - 1 is the most a 32-bit accumulator holds; 48 bits hold the same sums."""
    registers = {**CONV, "IN_CHANNELS": 2, "W_PITCH": 2, "OUT_CHANNELS": 1}
    data = {DATA: np.array([-(1 << 15)] * 2, np.int16), DATA + 64: np.array([-1], np.int32)}
    load = (
        segments(4)
        + transfer("nmp_load", 2, "mb0", DATA)
        + transfer("nmp_load", 2, "mb1", DATA)
        + transfer("nmp_load", 2, "bias", DATA + 64)
        + wait(2, 3)
    )
    narrow = small_machine(mac={"accumulator_bits": 32})
    body = load + mac(**registers) + "nmp_percept 1, {}\n" + wait(1) + EXIT
    trap = trapped(body.format("zero"), narrow, data=data)  # 2**31: one too many
    assert trap.code == TrapCode.ACCUMULATOR_OVERFLOW
    assert f"accumulator {1 << 31} needs more than 32 bits" in str(trap)
    run(body.format("bias"), narrow, data=data)  # 2**31 - 1
    run(body.format("zero"), data=data)
    data[DATA] = np.array([-(1 << 15), 1 << 14], np.int16)  # 2**30 + 2**28 a time
    run(body.format("zero"), narrow, data=data)
    twice = load + mac(**registers) + "nmp_percept 0, zero\nnmp_percept 0, keep\n" + EXIT
    trap = trapped(twice, narrow, data=data)
    assert trap.code == TrapCode.ACCUMULATOR_OVERFLOW and trap.place.instruction.endswith("keep")
    window = mac(**{**CONV, "KERNEL_ROWS": 1, "KERNEL_COLUMNS": 1, "IN_CHANNELS": 2,
                    "OUT_CHANNELS": 1, "IN_ROWS": 1, "IN_COLUMNS": 1, "OUT_ROWS": 1,
                    "OUT_COLUMNS": 1})  # fmt: skip
    data[DATA] = np.array([-(1 << 15)] * 2, np.int16)
    trap = trapped(load + window + "nmp_conv2d 1, zero\n" + EXIT, narrow, data=data)
    assert trap.code == TrapCode.ACCUMULATOR_OVERFLOW
    element = mac(**{**OPERATIONS["nmp_veop 1, add"], "SHIFT_A": 24, "OUT_CHANNELS": 1,
                     "OUT_ROWS": 1, "OUT_COLUMNS": 1})  # fmt: skip
    run(load + element + "nmp_veop 1, copy\n" + EXIT, narrow, data=data)  # byte 0 of -32768 is 0
    data[DATA] = np.array([-128, -128, 0, 0], np.int8)
    run(load + element + "nmp_veop 1, copy\n" + EXIT, narrow, data=data)  # -2**31 fits
    for op in ("add", "accumulate"):
        data[DATA] = np.array([-128, -128, 0, 0], np.int8)
        ops = f"nmp_veop 1, copy\nnmp_veop 1, {op}\n"
        trap = trapped(load + element + ops + EXIT, narrow, data=data)
        assert trap.code == TrapCode.ACCUMULATOR_OVERFLOW, op


def test_accumulator_overflow_of_48_bits() -> None:
    text = mac(**{**OPERATIONS["nmp_veop 1, add"], "SHIFT_A": 40, "SHIFT_B": 40})
    load = segments(64) + transfer("nmp_load", 2, "mb0", DATA) + transfer(
        "nmp_load", 2, "mb1", DATA) + wait(2, 2)  # fmt: skip
    data = {DATA: np.full(64, 64, np.int8)}  # 2 * 2**46 = 2**47
    trap = trapped(load + text + "nmp_veop 1, add\n" + EXIT, data=data)
    assert f"accumulator {1 << 47} needs more than 48 bits" in str(trap)
    run(load + text + "nmp_veop 1, add\n" + EXIT, data={DATA: np.full(64, 63, np.int8)})


def test_one_core_waits_for_ever() -> None:
    text = "li t1, 1\nbne a0, t1, done\n" + wait(3, 2) + "done: " + EXIT
    trap = trapped(text, small_machine(1, 3))
    assert trap.code == TrapCode.DEADLOCK and trap.place.unit == "core 1"
    assert len(trap.waiters) == 1
    assert str(trap) == (
        f"deadlock: core 1 at {trap.place.address:#x} waits for TLT semaphore 3 to reach 2 "
        "(it is 0)"
    )
    assert trap.place.address == BASE + 12 and trap.place.instruction == "nmp_wait tlt, 3, t6"


def test_all_wait_for_ever_by_level() -> None:
    text = signal(2, 2, "tle") + wait(2, 9, "tle") + EXIT
    trap = trapped(text, small_machine(2, 2))
    assert [waiter.place.unit for waiter in trap.waiters] == [f"core {k}" for k in range(4)]
    assert all("TLE semaphore 2 to reach 9 (it is 4)" in str(w) for w in trap.waiters)
    trap = trapped(signal(5, 1, "global") + wait(5, 5, "global") + EXIT, small_machine(2, 2))
    assert all("global semaphore 5 to reach 5 (it is 4)" in str(w) for w in trap.waiters)


def test_multicast_waits_for_a_buffer_that_nobody_frees() -> None:
    """Core 0 may multicast when both cores have freed MB0; core 1 forgets to."""
    text = (
        "bnez a0, other\n"
        + signal(1, 1, "tle")
        + wait(1, 2, "tle")
        + segments(64)
        + transfer("nmp_mload", 3, "mb0", DATA)
        + "other: "
        + wait(3)
        + EXIT
    )
    trap = trapped(text, small_machine(1, 2))
    assert [str(w).split(" waits for ")[1] for w in trap.waiters] == [
        "TLE semaphore 1 to reach 2 (it is 1)",
        "TLT semaphore 3 to reach 1 (it is 0)",
    ]


def test_deadlock_names_layers() -> None:
    code = assemble(wait(3) + EXIT, BASE, isa=NMP_ISA)
    found = NmpSimulator(
        small_machine(), code, BASE, DRAM_BYTES,
        layer_names=("conv1",), layer_of=np.zeros(len(code), np.int32),
    )  # fmt: skip
    with pytest.raises(Trap, match=r"core 0 at .* in layer 'conv1' waits for TLT") as caught:
        found.run(BASE)
    assert caught.value.place.layer == "conv1"


def test_bad_semaphore_operations() -> None:
    machine = small_machine(dme={"semaphores": 12})
    run(signal(11) + wait(11) + EXIT, machine)
    for text in (
        signal(12), wait(12), signal(12, 1, "tle"), "li t6, 1\nnmp_release 2, 13, t6",
        mac(**CONV) + "nmp_conv2d 12, zero", segments(4) + transfer("nmp_load", 12, "mb0", DATA),
    ):  # fmt: skip
        trap = trapped(text, machine)
        assert trap.code == TrapCode.SEMAPHORE and "has 12" in str(trap), text
    for text in (
        "nmp_signal 3, 1, t6", "nmp_wait 3, 1, t6", "nmp_release 0, 1, t6", "nmp_release 3, 1, t6",
        signal(1, -1), wait(1, -1), "li t6, -1\nnmp_release 1, 1, t6",
    ):  # fmt: skip
        assert trapped(text).code == TrapCode.SEMAPHORE, text


HAZARD_CONV = {**CONV, "IN_ADDRESS": 1024, "OUT_CHANNELS": 8}  # reads MB0 from 1024 to 1312


@pytest.mark.parametrize("ports", [1, 2])
@pytest.mark.parametrize(
    ("mnemonic", "memory", "offset", "clash"),
    [
        ("nmp_load", "mb0", 1024, True), ("nmp_load", "mb0", 1304, True),
        ("nmp_load", "mb0", 1312, False), ("nmp_load", "mb0", 1016, False),
        ("nmp_load", "mb1", 0, True), ("nmp_load", "mb1", 568, True),
        ("nmp_load", "mb1", 576, False), ("nmp_load", "bias", 24, True),
        ("nmp_load", "bias", 32, False), ("nmp_store", "mb2", 124, True),
        ("nmp_store", "mb2", 128, False),
    ],
)  # fmt: skip
def test_dma_touches_what_the_mac_unit_uses(
    mnemonic: str, memory: str, offset: int, clash: bool, ports: int
) -> None:
    """The transfer of 8 bytes issues while the convolution is still running. With one port other
    bytes of the same memory are not free, either."""
    machine = small_machine(memories={"ports": ports})
    text = (
        mac(**HAZARD_CONV)
        + segments(8, element_bytes=2)
        + transfer(mnemonic, 2, memory, DATA, offset).rsplit("nmp_", 1)[0]
        + "nmp_conv2d 1, bias\n"
        + f"{mnemonic} 2, {memory}, t4, t5\n"
        + wait(2)
        + wait(1)
        + EXIT
    )
    if ports == 2 and not clash:
        run(text, machine)
        return
    trap = trapped(text, machine)
    name = {"bias": "the bias buffer"}.get(memory, memory.upper())
    assert trap.code == TrapCode.HAZARD and trap.place.instruction.startswith(mnemonic)
    assert f"{name} of core 0 while its MAC unit" in str(trap)


def test_hazard_of_a_multicast_names_sender_and_victim() -> None:
    text = (
        "bnez a0, victim\n"
        + segments(8)
        + transfer("nmp_mload", 2, "mb0", DATA, 1024)
        + "j end\nvictim: "
        + mac(**HAZARD_CONV)
        + "nmp_conv2d 1, zero\n"
        + "end: "
        + wait(2)
        + EXIT
    )
    trap = trapped(text, small_machine(1, 2))
    assert trap.code == TrapCode.HAZARD and trap.place.unit == "core 0"
    assert trap.place.instruction.startswith("nmp_mload") and "MB0 of core 1 while" in str(trap)


def test_an_operation_that_does_not_read_a_buffer_does_not_guard_it() -> None:
    """After a convolution is complete, a requantization of MB2 leaves MB0 and MB1 free."""
    text = (
        mac(**{**CONV, "SHIFT": 3, "LOW": -9, "HIGH": 9})
        + segments(8)
        + "nmp_conv2d 1, zero\n"
        + wait(1)
        + f"li t4, {DATA}\nli t5, 0\n"
        + "nmp_activation 1\n" * 4
        + "nmp_load 2, mb0, t4, t5\nnmp_load 2, mb1, t4, t5\n"
    )
    slow = small_machine(mac={"setup_cycles": 1000})
    run(text + wait(2, 2) + wait(1, 4) + EXIT, slow)


@pytest.mark.parametrize("ports", [1, 2])
def test_reading_what_a_pending_transfer_writes_or_overwriting_what_it_reads(ports: int) -> None:
    """The program forgot to wait: an operation uses MB0 before its load, MB2 before its store."""
    machine = small_machine(memories={"ports": ports})
    start = mac(**CONV) + segments(8)
    for mnemonic, memory, offset, clash in (
        ("nmp_load", "mb0", 0, True),
        ("nmp_load", "mb0", 288, False),
        ("nmp_load", "mb1", 8, True),
        ("nmp_store", "mb2", 0, True),
        ("nmp_store", "mb2", 256, False),
    ):
        text = start + transfer(mnemonic, 2, memory, DATA, offset) + "{}nmp_conv2d 1, zero\n" + EXIT
        run(text.format(wait(2)), machine)
        if clash or ports == 1:
            trap = trapped(text.format(""), machine)
            assert trap.code == TrapCode.HAZARD and trap.place.instruction.startswith("nmp_conv2d")
            assert f"{memory.upper()} of core 0" in str(trap)
        else:
            run(text.format(""), machine)


def test_trap_without_timing_is_the_same() -> None:
    text = spin(20) + conv(OUT_ADDRESS=5000)
    one, two = trapped(text), trapped(text, timing=False)
    assert str(one) == str(two)


def test_every_code_has_a_format_that_works() -> None:
    from tvm_npu.sim.nmp.traps import DETAIL_FORMATS

    values = dict(a=1, b=2, c=3, memory="MB0", register="MAC register SHIFT", semaphores=16,
                  machine="small")  # fmt: skip
    for code in TrapCode:
        if code not in (TrapCode.NONE, TrapCode.DEADLOCK):
            assert json.dumps(DETAIL_FORMATS[code].format(**values))


def test_wrong_use_of_the_simulator() -> None:
    machine = small_machine(1, 2)
    code = assemble(EXIT, BASE, isa=NMP_ISA)
    for count in (0, 3, -1):
        with pytest.raises(SimError, match=f"{count} cores .* has 2"):
            NmpSimulator(machine, code, BASE, DRAM_BYTES).run(BASE, cores=count)
    for register in (0, 10, 32):
        with pytest.raises(SimError, match=f"register {register}"):
            NmpSimulator(machine, code, BASE, DRAM_BYTES).run(BASE, {register: 1})
    for address in (BASE - 4, BASE + DRAM_BYTES - 4, BASE + 2):
        with pytest.raises(SimError, match=f"code at {address:#x}"):
            NmpSimulator(machine, code, address, DRAM_BYTES)
    with pytest.raises(SimError, match="DRAM"):
        NmpSimulator(machine, code, BASE, machine.dram.capacity_bytes + 1)
    with pytest.raises(SimError, match="layer"):
        NmpSimulator(machine, code, BASE, DRAM_BYTES, layer_of=np.full(len(code), 1, np.int32))
    with pytest.raises(SimError, match="stream_of"):
        NmpSimulator(machine, code, BASE, DRAM_BYTES, stream_of=np.zeros(1, np.int8))
    found = NmpSimulator(machine, code, BASE, DRAM_BYTES)
    for address in (BASE - 1, BASE + DRAM_BYTES):
        with pytest.raises(SimError, match="do not lie in"):
            found.write(address, np.zeros(1, np.uint8))
