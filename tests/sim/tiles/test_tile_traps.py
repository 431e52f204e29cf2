"""Every way a tile program can go wrong: the trap's code, place and message."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sim.tiles.programs import (
    BASE,
    DRAM_BYTES,
    ON_CHIP,
    SEGMENTS,
    WINDOW,
    load,
    machine,
    run,
    sets,
    simulator,
    store,
    words,
)
from tvm_npu.sim.errors import SimError
from tvm_npu.sim.isa.table import Field
from tvm_npu.sim.tiles.isa import TILE_ISA, TileMemory
from tvm_npu.sim.tiles.machine import TileMachine
from tvm_npu.sim.tiles.simulator import TileSimulator
from tvm_npu.sim.tiles.traps import TileTrapCode
from tvm_npu.sim.traps import Trap

CONV = (
    load("input", 0, 64) + load("weight", 0, 32)
    + sets(OPERANDS=ON_CHIP, **WINDOW, IN_CHANNELS=4, IN_ROWS=2, IN_COLUMNS=2, OUT_CHANNELS=2,
           OUT_ROWS=2, OUT_COLUMNS=2, LOW=-128, HIGH=127)
)  # fmt: skip
FINISH = CONV + "tconv zero\n"
POOL = CONV + sets(IN_CHANNELS=2, KERNEL_ROWS=2, KERNEL_COLUMNS=2, PAD_TOP=1, PAD_LEFT=1)


def trapped(text: str, constants: Any = np.zeros(64, np.int32), **options: Any) -> Trap:  # noqa: B008
    with pytest.raises(Trap) as caught:
        run(text + "tend\n", constants, **options)
    return caught.value


def test_the_starting_points_are_good() -> None:
    for text in (CONV, FINISH + "tfinish plain\n", POOL + "tpool max\n", CONV + "tvec add\n"):
        run(text + "tend\n", np.zeros(64, np.int32))


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (".word 0xffffffff", "ILLEGAL_INSTRUCTION", "illegal instruction 0xffffffff"),
        ("tset 50, 3", "ILLEGAL_INSTRUCTION", "tset 50, 3"),
        (CONV + "tconv 2", "ILLEGAL_INSTRUCTION", "tconv 2"),
        (CONV + "tpool 3", "ILLEGAL_INSTRUCTION", "tpool 3"),
        (CONV + "tvec 3", "ILLEGAL_INSTRUCTION", "tvec 3"),
        ("tload input, constants, 7", "ILLEGAL_INSTRUCTION", "tload input, constants, 7"),
        (CONV + sets(IN_OFFSET=4040) + "tconv zero", "TILE_OUTSIDE",
         "IN_OFFSET puts the operand at bytes 4040..4104 of the input memory, which has 4096"),
        (CONV + sets(IN_OFFSET=-4) + "tconv zero", "TILE_OUTSIDE", "bytes -4..60"),
        (CONV + sets(W_OFFSET=4090) + "tconv zero", "TILE_OUTSIDE", "W_OFFSET .*weight memory"),
        (CONV + sets(OUT_OFFSET=8170) + "tconv zero", "TILE_OUTSIDE", "OUT_OFFSET .*8202"),
        (CONV + sets(IN_CHANNELS=1 << 17, GROUPS=2) + "tconv zero", "TILE_OUTSIDE", "IN_OFFSET"),
        (CONV + sets(KERNEL_ROWS=1 << 17, KERNEL_COLUMNS=1 << 17) + "tconv zero", "TILE_OUTSIDE",
         "W_OFFSET"),
        (load("input", 0, 8, 4090), "TILE_OUTSIDE", "CHIP_OFFSET .*4090..4098 .*has 4096"),
        (load("bias", 0, 300), "TILE_OUTSIDE", "the bias memory, which has 256"),
        (load("input", (1 << 20) - 4, 8), "TRANSFER_OUTSIDE",
         "touches bytes 1048572..1048580 of segment CONSTANTS, which has 1048576"),
        (load("input", -8, 8), "TRANSFER_OUTSIDE", "-8..0"),
        (sets(RUN_BYTES=4, COUNT_INNER=4, STRIDE_INNER=1 << 19, COUNT_OUTER=1)
         + "tload input, activations, in", "TRANSFER_OUTSIDE", "0..1572868 of segment ACTIVATIONS"),
        (load("input", 0, 0), "BAD_REGISTER", "RUN_BYTES is 0; allowed here are 1 to 16777216"),
        (sets(RUN_BYTES=4) + "tload input, constants, in", "BAD_REGISTER", "COUNT_INNER is 0"),
        (sets(RUN_BYTES=4, COUNT_INNER=2, STRIDE_INNER=-4, COUNT_OUTER=1)
         + "tload input, constants, in", "BAD_REGISTER", "STRIDE_INNER is -4"),
        (CONV + sets(STRIDE_ROWS=0) + "tconv zero", "BAD_REGISTER", "STRIDE_ROWS is 0; .* 1 to"),
        (CONV + sets(PAD_TOP=-1) + "tconv zero", "BAD_REGISTER", "PAD_TOP is -1"),
        (CONV + sets(IN_ROWS=-1) + "tconv zero", "BAD_REGISTER", "IN_ROWS is -1"),
        (CONV + sets(GROUPS=3) + "tconv zero", "BAD_REGISTER", "GROUPS is 3; .* 1 to 2"),
        (CONV + sets(OUT_CHANNELS=3, GROUPS=2) + "tconv zero", "BAD_REGISTER", "OUT_CHANNELS is 3"),
        (CONV + sets(W_FILTER_BYTES=8) + "tconv zero", "BAD_REGISTER", "W_FILTER_BYTES is 8; .*16"),
        (CONV + sets(TAPS_AT_ONCE=2) + "tconv zero", "BAD_REGISTER", "TAPS_AT_ONCE is 2; .*0 to 1"),
        (FINISH + sets(SHIFT=63) + "tfinish plain", "BAD_REGISTER", "SHIFT is 63; .* -47 to 62"),
        (FINISH + sets(SHIFT_A=48) + "tfinish plain", "BAD_REGISTER", "SHIFT_A is 48"),
        (FINISH + sets(LOW=8, HIGH=7) + "tfinish plain", "BAD_REGISTER", "LOW is 8; .* to 7"),
        (POOL + sets(IN_CHANNELS=3) + "tpool max", "BAD_REGISTER", "IN_CHANNELS is 3; .*2 to 2"),
        (CONV + sets(FILL=128) + "tfill", "BAD_REGISTER", "FILL is 128; .* -128 to 127"),
        (CONV + sets(OPERANDS=ON_CHIP | 3) + "tconv zero", "WRONG_MEMORY",
         "the bias memory cannot be used here"),
        (CONV + sets(OPERANDS=ON_CHIP | 4) + "tconv zero", "WRONG_MEMORY", "CONSTANTS cannot"),
        (CONV + sets(OPERANDS=ON_CHIP | 7) + "tconv zero", "WRONG_MEMORY", "memory 7 cannot"),
        (CONV + sets(OPERANDS=5 << 6) + "tfill", "WRONG_MEMORY", "ACTIVATIONS cannot"),
        ("tload constants, constants, in", "WRONG_MEMORY", "CONSTANTS"),
        ("tload input, output, in", "WRONG_MEMORY", "the output memory"),
        (CONV + "tstore input, constants, out", "WRONG_MEMORY", "CONSTANTS"),
        (CONV + sets(IN_OFFSET=4) + "tconv zero", "NOT_WRITTEN",
         "byte 64 of the input memory is read, and nothing was written there"),
        (CONV + sets(W_OFFSET=16) + "tconv zero", "NOT_WRITTEN", "byte 32 of the weight memory"),
        (CONV + "tconv keep", "NOT_WRITTEN", "byte 0 of the output memory"),
        (FINISH + "tfinish bias", "NOT_WRITTEN", "byte 0 of the bias memory"),
        (FINISH + sets(IN_OFFSET=36) + "tfinish residual", "NOT_WRITTEN", "byte 64 of the input"),
        (store("output", 0, 4), "NOT_WRITTEN", "byte 0 of the output memory"),
        (POOL + sets(KERNEL_ROWS=1) + "tpool max", "EMPTY_WINDOW", "row 0, column 0 counts no"),
        (POOL + "tpool average", "EMPTY_WINDOW", "row 0, column 0 counts no element"),
        ("tgo input, constants, in, 0, load", "NO_UNIT", "machine small has no DMA controller"),
        ("twait 3", "NO_UNIT", "machine small has no DMA controller"),
    ],
)  # fmt: skip
def test_traps(text: str, code: str, message: str) -> None:
    found = trapped(text + "\n")
    assert found.code == TileTrapCode[code]
    assert found.place.index == len(words(text)) - 1
    with pytest.raises(Trap, match=message):
        raise found


def test_code_without_an_end() -> None:
    for text, rows in (("", 0), ("tset fill, 3\n", 1)):
        with pytest.raises(Trap, match=f"the code of {rows} words ends without tend") as caught:
            run(text)
        assert (caught.value.code, caught.value.place.index) == (TileTrapCode.NO_END, rows)


@pytest.mark.parametrize(("value", "precision"), [
    (128, "int8"), (-129, "int8"), (32768, "int16"), (-32769, "int16"),
])  # fmt: skip
@pytest.mark.parametrize("place", [3, 20])
def test_elements_fit_their_type(value: int, precision: str, place: int) -> None:
    data = np.zeros(64, np.int32)
    data[place] = value
    text = CONV.replace("tset address, 0", "tset address, 64", 2).replace("64", "0", 1)
    found = trapped(text + "tconv zero\n", data, precision=precision)
    assert found.code == TileTrapCode.BAD_ELEMENT
    memory = "input" if place < 16 else "weight"
    low, high = (-128, 127) if precision == "int8" else (-32768, 32767)
    message = f"{value} in the {memory} memory is read as an element; elements are {low} to {high}"
    assert message in str(found)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("precision", "width"), [("int8", 4), ("int16", 8)])
def test_sums_fit_their_accumulators(sign: int, precision: str, width: int) -> None:
    """One more than what fits traps; what fits does not."""
    top = (1 << (8 * width - 1)) - 1
    edge = top if sign > 0 else -top - 1
    for step in (0, 1):
        sums = np.array([0, edge - sign * (12 - step)], f"<i{width}").view(np.int32)
        data = np.concatenate([np.array([3, sign, sign * 4], np.int32), sums])
        text = load("input", 0, 4) + load("weight", 4, 8) + load("output", 12, 2 * width)
        text += sets(OPERANDS=ON_CHIP, **WINDOW, IN_CHANNELS=1, IN_ROWS=1, IN_COLUMNS=1)
        text += sets(OUT_CHANNELS=2, OUT_ROWS=1, OUT_COLUMNS=1) + "tconv keep\n"
        if step == 0:
            run(text + "tend\n", data, precision=precision)
        else:
            found = trapped(text, data, precision=precision)
            assert found.code == TileTrapCode.ACCUMULATOR_OVERFLOW
            assert f"a sum of channel 1 does not fit {8 * width} bits" in str(found)


def test_a_shift_loses_no_bit() -> None:
    sums = np.array([1 << 20, 1 << 50], np.int64).view(np.int32)
    text = load("output", 0, 16) + load("input", 16, 8) + sets(OPERANDS=ON_CHIP, OUT_CHANNELS=2)
    text += sets(OUT_ROWS=1, OUT_COLUMNS=1, LOW=-128, HIGH=127, SHIFT_A=13) + "tfinish residual\n"
    found = trapped(text, np.concatenate([sums, np.zeros(2, np.int32)]), precision="int16")
    assert found.code == TileTrapCode.ACCUMULATOR_OVERFLOW
    assert "a sum of channel 1 does not fit 50 bits" in str(found)


def test_what_finishing_leaves_behind_is_not_readable() -> None:
    """Elements are narrower than accumulators; the bytes behind them hold nothing."""
    on = machine(words={"int8_bytes": 1})
    text = CONV + "tconv zero\ntfinish plain\n"
    run(text + store("output", 0, 8) + "tend\n", np.zeros(64, np.int32), on)
    found = trapped(text + store("output", 0, 9), on=on)
    assert found.code == TileTrapCode.NOT_WRITTEN and "byte 8 of the output" in str(found)


def test_a_shared_memory_is_named() -> None:
    on = machine(memories={"shared_bytes": 1024})
    found = trapped(load("weight", 0, 8, 1020), on=on)
    assert "bytes 1020..1028 of the shared memory (as WEIGHT), which has 1024" in str(found)


def test_place_is_complete_and_simulator_stays_usable() -> None:
    text = load("input", 0, 64) + load("input", 0, 64, 5000) + "tend\n"
    first = len(words(load("input", 0, 64)))
    found = simulator(
        text, layer_names=("c1", "c2"),
        layer_of=np.array([0] * first + [1] * (len(words(text)) - first), np.int32),
    )  # fmt: skip
    for _ in range(2):
        with pytest.raises(Trap) as caught:
            found.run()
        trap = caught.value
        assert str(trap) == (
            f"instruction {2 * first - 1} (tload input, constants, other) in layer 'c2': "
            "CHIP_OFFSET puts the operand at bytes 5000..5064 of the input memory, which has 4096 "
            "[ADDRESS 0, CHIP_OFFSET 5000, RUN_BYTES 64, COUNT_INNER 1, STRIDE_INNER 0, "
            "COUNT_OUTER 1, STRIDE_OUTER 0]"
        )
        assert (trap.place.layer, trap.place.registers["CHIP_OFFSET"]) == ("c2", 5000)
    assert str(pickle.loads(pickle.dumps(trap))) == str(trap)
    assert {trap: 1}[trap] == 1


def test_wrong_use_of_the_simulator() -> None:
    code = words("tend\n")
    with pytest.raises(SimError, match="the image needs .* bytes of DRAM; small has"):
        TileSimulator(machine(), code, SEGMENTS, 1 << 32)
    with pytest.raises(SimError, match="segment CONSTANTS at 0x80000000.* does not lie in"):
        TileSimulator(machine(), code, SEGMENTS, 4096)
    with pytest.raises(SimError, match="layer_of needs 1 numbers from -1 to 0"):
        TileSimulator(machine(), code, SEGMENTS, DRAM_BYTES, layer_names=("a",),
                      layer_of=np.array([1], np.int32))  # fmt: skip
    found = TileSimulator(machine(), code, {}, 4096)
    with pytest.raises(SimError, match="8 bytes at 0x80000ffc do not lie"):
        found.write(BASE + 4092, np.zeros(8, np.uint8))


@pytest.mark.parametrize(
    ("text", "work"),
    [
        (CONV, 64 + 32),  # bytes that are loaded
        (FINISH, 96 + 64 + 32 + 32 + 32),  # bytes of input, weights and output, and products
        (FINISH + "tfinish plain\n", 256 + 32),
        (POOL + "tpool max\n", 96 + 32 + 32 + 8 * (1 + 4)),  # 8 outputs, windows of 4
        (CONV + "tvec add\n", 96 + 3 * 32),
        (CONV + store("input", 0, 64), 96 + 64),
    ],
)  # fmt: skip
def test_work_is_limited_to_the_unit(text: str, work: int) -> None:
    """Just enough work runs, one unit less traps."""
    zeros = np.zeros(64, np.int32)
    run(text + "tend\n", zeros, most_work=work)
    found = trapped(text, zeros, most_work=work - 1)
    assert found.code == TileTrapCode.BUDGET
    assert f"more than {work - 1} products, elements and bytes in a run" in str(found)


@pytest.mark.parametrize("text", ["", CONV, FINISH + "tfinish plain\n"])
def test_instructions_are_limited_to_the_last(text: str) -> None:
    """Just enough instructions run, ``tend`` among them, one less traps there."""
    zeros, count = np.zeros(64, np.int32), len(words(text + "tend\n"))
    run(text + "tend\n", zeros, budget=count)
    found = trapped(text, zeros, budget=count - 1)
    assert found.code == TileTrapCode.RUNAWAY and found.place.index == count - 1
    assert f"more than {count - 1} instructions in a run" in str(found)


def test_ranges_in_use_are_work() -> None:
    """A mover that takes long keeps every range that was loaded in use: each next command is
    compared with all of them."""
    one = sets(ADDRESS=0, RUN_BYTES=1, COUNT_INNER=1, COUNT_OUTER=1)
    loads = [f"tset chip_offset, {2 * k}\ntload input, constants, other\n" for k in range(800)]
    slow = machine(mover={"setup_cycles": 1e6, "segment_cycles": 0.0, "bytes_per_cycle": 1.0})
    run(one + "".join(loads[:200]) + "tend\n", on=slow, most_work=200)
    with pytest.raises(Trap) as caught:
        run(one + "".join(loads) + "tend\n", on=slow, most_work=1 << 16)
    assert caught.value.code == TileTrapCode.BUDGET


def test_every_trap_is_tested() -> None:
    here = Path(__file__)
    text = here.read_text("utf-8") + (here.parent / "test_tile_dma.py").read_text("utf-8")
    for code in TileTrapCode:
        assert code == TileTrapCode.NONE or code.name in text


def test_registers_in_messages_exist() -> None:
    """Every instruction but those that set registers and the last one says what it reads."""
    from tvm_npu.sim.tiles.reads import READS

    silent = {"tset", "tsetu", "twait", "tend"}
    assert set(READS) == {item.mnemonic for item in TILE_ISA.instructions} - silent
    assert all(isinstance(item, Field) for item in TILE_ISA.instructions[0].fields)
    assert isinstance(machine(), TileMachine) and TileMemory.INPUT == 0
