"""Transfers with chosen receivers and forwards from MB2 to MB0: values, time, traps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.sim.nmp.programs import (
    CONV,
    DATA,
    DRAM_BYTES,
    EXIT,
    cycles,
    dma,
    instructions,
    mac,
    run,
    segments,
    simulator,
    small_machine,
    spin,
    transfer,
    wait,
)
from tests.sim.nmp.test_dma import VALUES, copy_to_mb2, padded_box
from tests.sim.nmp.test_timing import EXIT_CYCLES, transfer_cycles
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine, nmp_machine_from_dict
from tvm_npu.sim.nmp.simulator import NmpSimulator
from tvm_npu.sim.nmp.traps import TrapCode
from tvm_npu.sim.nmp.xnmp import NMP_ISA
from tvm_npu.sim.statistics import MovedBytes
from tvm_npu.sim.traps import Trap

TLES, TLTS = 3, 4
SEM = 5


def only(core: int, text: str, label: str = "only") -> str:
    """``text`` for one core."""
    return f"li t0, {core}\nbne a0, t0, {label}\n{text}{label}: "


def receivers(tlts: int, tles: int) -> str:
    return dma(RECEIVER_TLTS=tlts, RECEIVER_TLES=tles)


def without_ring(tles: int = 1, tlts: int = 1) -> NmpMachine:
    values = small_machine(tles, tlts).model_dump()
    del values["ring"]
    return nmp_machine_from_dict(values)


def trapped(text: str, machine: NmpMachine | None = None, **options: Any) -> Trap:
    with pytest.raises(Trap) as caught:
        run(text, machine, **options)
    return caught.value


def expected_receivers(multicast: bool, sender: int, tlts: int, tles: int) -> set[int]:
    own_tle, own_tlt = divmod(sender, TLTS)
    of_tle = [k for k in range(TLTS) if tlts >> k & 1] or list(range(TLTS))
    of_machine = [t for t in range(TLES) if tles >> t & 1] or [own_tle]
    return {t * TLTS + k for t in of_machine for k in (of_tle if multicast else [own_tlt])}


@given(
    st.booleans(), st.booleans(), st.sampled_from(["mb0", "mb1", "bias"]),
    st.integers(0, TLES * TLTS - 1), st.integers(0, 2**TLTS - 1), st.integers(0, 2**TLES - 1),
    st.booleans(),
)  # fmt: skip
@settings(max_examples=examples(60), deadline=None)
def test_receivers_of_loads(
    multicast: bool, box: bool, memory: str, sender: int, tlts: int, tles: int, timing: bool
) -> None:
    """They get the data and one signal each, others neither; DRAM is read once."""
    mnemonic = "nmp_" + "m" * multicast + "load" + "3d" * box
    shape = dma(
        CHANNELS=1, ROWS=1, COLUMNS=64, CHANNEL_STRIDE=64, ROW_STRIDE=64, START_CHANNEL=0,
        START_ROW=0, START_COLUMN=0, BOX_CHANNELS=1, BOX_ROWS=1, BOX_COLUMNS=64, FILL=0,
        ELEMENT_BYTES=1,
    )  # fmt: skip
    text = (shape if box else segments(64)) + receivers(tlts, tles)
    text += transfer(mnemonic, SEM, memory, DATA, 32)
    found, statistics = run(
        only(sender, text) + EXIT, small_machine(TLES, TLTS), {DATA: VALUES}, timing=timing
    )
    expected = expected_receivers(multicast, sender, tlts, tles)
    for core in range(TLES * TLTS):
        got = getattr(found._state, memory)[core]
        assert np.array_equal(got[32:96], VALUES[:64] if core in expected else np.zeros(64))
        assert not got[:32].any() and not got[96:].any()
        assert found._state.sem_tlt[core, SEM] == (core in expected)
    assert statistics.loaded_bytes == {"other": 64}
    elsewhere = any(core // TLTS != sender // TLTS for core in expected)
    assert statistics.bytes_over("ring") == ({"other": 64} if elsewhere else {})
    assert not statistics.bytes_over("forwarded") and not found._state.ring_queued.any()


def test_stores_have_no_receivers() -> None:
    text = receivers(15, 7) + segments(64) + transfer("nmp_store", SEM, "mb2", DATA)
    found, statistics = run(only(5, text) + EXIT, small_machine(TLES, TLTS), {DATA: VALUES})
    assert np.flatnonzero(found._state.sem_tlt[:, SEM]).tolist() == [5]
    assert not found.dram[DATA - 0x8000_0000 :][:64].any()
    assert statistics.stored_bytes == {"other": 64} and not statistics.bytes_over("ring")


def fill_mb2(elements: int, element_bytes: int) -> str:
    """MB2[k] = DRAM[DATA][k]."""
    return (
        segments(elements * element_bytes, element_bytes=element_bytes)
        + transfer("nmp_load", 2, "mb0", DATA)
        + wait(2)
        + copy_to_mb2(elements, element_bytes)
    )


def forward(mnemonic: str, local: int, source: int) -> str:
    return f"li t4, {local}\nli t5, {source}\n{mnemonic} {SEM}, t4, t5\n"


def forwarded_to(sender: int, tlts: int, tles: int) -> set[int]:
    return expected_receivers(True, sender, tlts or 1 << sender % TLTS, tles)


@given(
    st.sampled_from([1, 2]), st.integers(0, 4), st.integers(0, 20), st.integers(0, 40),
    st.integers(0, 9), st.integers(0, 9), st.integers(0, TLES * TLTS - 1),
    st.integers(0, 2**TLTS - 1), st.integers(0, 2**TLES - 1), st.booleans(),
)  # fmt: skip
@settings(max_examples=examples(60), deadline=None)
def test_forwarded_segments(
    element_bytes: int, count: int, size: int, stride: int, at: int, source: int, sender: int,
    tlts: int, tles: int, timing: bool,
) -> None:  # fmt: skip
    values = VALUES.view({1: np.int8, 2: np.int16}[element_bytes])
    moved = np.concatenate(
        [values[source + k * stride :][:size] for k in range(count)] or [values[:0]]
    ).view(np.int8)
    text = fill_mb2(256, element_bytes) + receivers(tlts, tles)
    text += segments(size * element_bytes, count, stride * element_bytes, element_bytes)
    text += forward("nmp_forward", 1024 + at * element_bytes, source)
    found, statistics = run(
        only(sender, text) + EXIT, small_machine(TLES, TLTS), {DATA: VALUES}, timing=timing
    )
    expected = forwarded_to(sender, tlts, tles)
    for core in range(TLES * TLTS):
        got = found._state.mb0[core, 1024:]
        begin, end = at * element_bytes, at * element_bytes + len(moved)
        if core in expected:
            assert np.array_equal(got[begin:end], moved)
        else:
            assert not got[begin:end].any()
        assert not got[:begin].any() and not got[end:].any()
        assert found._state.sem_tlt[core, SEM] == (core in expected)
    assert statistics.loaded_bytes == {"other": 256 * element_bytes}
    forwarded = statistics.bytes_over("forwarded")
    assert forwarded == ({"other": len(moved)} if len(moved) else {})
    elsewhere = any(core // TLTS != sender // TLTS for core in expected)
    assert statistics.bytes_over("ring") == (forwarded if elsewhere else {})


@given(
    st.sampled_from([1, 2]), st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 9)),
    st.tuples(st.integers(-6, 6), st.integers(-8, 8), st.integers(-12, 12)),
    st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 9)), st.integers(-128, 127),
    st.integers(0, 3), st.integers(0, 8), st.integers(0, 30), st.booleans(),
)  # fmt: skip
@settings(max_examples=examples(80), deadline=None)
def test_forwarded_boxes(
    element_bytes: int, shape: tuple[int, int, int], start: tuple[int, int, int],
    box: tuple[int, int, int], fill: int, row_gap: int, channel_gap: int, source: int,
    timing: bool,
) -> None:  # fmt: skip
    """As nmp_load3d of the tensor, with gaps, that lies in MB2."""
    values = VALUES.view({1: np.int8, 2: np.int16}[element_bytes])
    row = shape[2] + row_gap
    channel = shape[1] * row + channel_gap
    strides = (channel * element_bytes, row * element_bytes, element_bytes)
    tensor = np.lib.stride_tricks.as_strided(values[source:], shape, strides)
    text = fill_mb2(512, element_bytes) + dma(
        CHANNELS=shape[0], ROWS=shape[1], COLUMNS=shape[2],
        CHANNEL_STRIDE=channel * element_bytes, ROW_STRIDE=row * element_bytes,
        START_CHANNEL=start[0], START_ROW=start[1], START_COLUMN=start[2],
        BOX_CHANNELS=box[0], BOX_ROWS=box[1], BOX_COLUMNS=box[2], FILL=fill,
        ELEMENT_BYTES=element_bytes,
    )  # fmt: skip
    text += forward("nmp_forward3d", 2048, source) + wait(SEM)
    found, statistics = run(text + EXIT, data={DATA: VALUES}, timing=timing)
    expected = padded_box(tensor, start, box, fill)
    got = found._state.mb0[0, 2048 : 2048 + expected.nbytes].view(expected.dtype)
    assert np.array_equal(got.reshape(box), expected)
    assert not found._state.mb0[0, 2048 + expected.nbytes :].any()
    inside = padded_box(np.ones_like(tensor), start, box, 0).sum() * element_bytes
    assert sum(statistics.bytes_over("forwarded").values()) == inside
    assert not statistics.bytes_over("ring")


def test_partial_sums_forward_as_they_would_be_stored() -> None:
    """MB2 holds more bits than a stored element has; the low ones go."""
    text = fill_mb2(256, 2) + mac(OUT_COLUMNS=256, SHIFT_A=12) + "nmp_veop 1, copy\n" + wait(1)
    text += segments(512, element_bytes=2) + forward("nmp_forward", 0, 0) + wait(SEM) + EXIT
    found, _ = run(text, data={DATA: VALUES})
    assert np.array_equal(
        found._state.mb0_half[0, :256], VALUES.view(np.int16)[:256] << np.int16(12)
    )


# ---- time


def ring(machine: NmpMachine) -> tuple[float, float]:
    assert machine.ring is not None
    return machine.ring.bytes_per_cycle, machine.ring.hop_cycles


@pytest.mark.parametrize("size", [64, 512, 4000])
@pytest.mark.parametrize("rate", [16.0, 0.25])
@pytest.mark.parametrize("tles", [1, 2, 4])
def test_forwarded_load(size: int, rate: float, tles: int) -> None:
    """The slower of engine and ring; hops only where it leaves the TLE."""
    machine = small_machine(tles, 1, ring={"bytes_per_cycle": rate, "hop_cycles": 5.0})
    text = segments(size) + receivers(0, 2**tles - 1) + transfer("nmp_load", 1, "mb0", DATA)
    issue = instructions("li t0, 0\nbne a0, t0, 4\n" + text)
    bursts = -(-size // 128)
    own = transfer_cycles(machine, bursts, size)
    if tles > 1:
        own = 16 + max(own - 16, size / rate) + 5 * (tles - 1)
    found = cycles(only(0, text) + wait(1) + EXIT, machine)
    assert found == pytest.approx(issue + own + EXIT_CYCLES)


@pytest.mark.parametrize("size", [2, 64, 4000])
@pytest.mark.parametrize("tles", [1, 4])
def test_forward_takes_ring_time_only(size: int, tles: int) -> None:
    machine = small_machine(4, 1, ring={"bytes_per_cycle": 2.0, "hop_cycles": 5.0})
    text = segments(size, element_bytes=2) + receivers(0, 2**tles - 1)
    text += forward("nmp_forward", 0, 0)
    issue = instructions("li t0, 0\nbne a0, t0, 4\n" + text)
    found, statistics = run(only(0, text + wait(SEM)) + EXIT, machine)
    took = 16 + size / 2.0 + (15 if tles > 1 else 0)
    assert statistics.cycles == pytest.approx(issue + max(took, 6) + EXIT_CYCLES)
    assert not statistics.loaded_bytes and not found._state.dram_free[0]


def test_engines_share_the_global_ringbus() -> None:
    """A slow one bounds all loads together; loads inside the TLEs and forwards inside a TLE do not
    need it."""
    slow = {"bytes_per_cycle": 0.5, "hop_cycles": 4.0}
    machine = small_machine(4, 1, ring=slow)
    load = segments(2048) + f"li t4, {DATA}\nslli t5, a0, 11\nnmp_load 1, mb0, t4, t5\n"
    all_tles = receivers(0, 15)
    issue = instructions(all_tles + load)
    together = cycles(all_tles + load + wait(1, 4) + EXIT, machine)
    least = issue + 16 + 4 * 2048 / 0.5 + 12 + EXIT_CYCLES
    assert least <= together <= least + 16 * (56 + 128 / 1.5)
    alone = cycles(load + wait(1) + EXIT, machine)
    assert alone == pytest.approx(cycles(load + wait(1) + EXIT, small_machine(4, 1)))
    assert alone < together / 4
    forwards = segments(4096) + forward("nmp_forward", 0, 0) + wait(SEM) + EXIT
    assert cycles(forwards, machine) == pytest.approx(
        instructions(segments(4096) + forward("nmp_forward", 0, 0)) + 16 + 8192 + EXIT_CYCLES
    )


def test_engines_of_receivers_stay_free() -> None:
    """TLE 1 loads for itself while TLE 0 sends it something: neither is later than alone by more
    than a few bursts."""
    machine = small_machine(2, 1)
    to_both = segments(4096) + receivers(0, 3) + transfer("nmp_load", 1, "mb0", DATA)
    to_itself = segments(4096) + receivers(0, 0) + transfer("nmp_load", 2, "mb1", DATA)
    text = f"bnez a0, one\n{to_both}j end\none: {to_itself}{wait(2)}end: {wait(1)}{EXIT}"
    one = transfer_cycles(machine, 32, 4096)
    issue = instructions(to_itself) + 1
    burst = 14 + 128 / 17.0
    assert issue + one <= cycles(text, machine) <= issue + one + 2 * burst + 4 + 12


def test_all_parts_of_a_tile_arrive_in_the_time_of_one() -> None:
    """Four TLEs load a quarter each for all: a quarter of the time of loading everything."""
    machine = load_nmp_machine("nmp-4x8").with_cores(4, 2)
    part = segments(1024) + receivers(0, 15)
    part += "slli t0, a0, 9\n" + f"li t4, {DATA}\nadd t4, t4, t0\nmv t5, t0\n"
    text = "andi t1, a0, 1\nbnez t1, end\n" + part + f"nmp_mload {SEM}, mb0, t4, t5\n"
    text += "end: " + wait(SEM, 4) + EXIT
    data = np.resize(VALUES, 8192)
    found, shared = run(text, machine, {DATA: data})
    assert (found._state.mb0[:, :4096] == data[:4096]).all()
    whole = segments(4096) + transfer("nmp_mload", SEM, "mb0", DATA)
    whole = "andi t1, a0, 1\nbnez t1, end\n" + whole + "end: " + wait(SEM) + EXIT
    each = run(whole, machine, {DATA: data})[1]
    assert shared.loaded_bytes == {"other": 4096} == shared.bytes_over("ring")
    assert each.loaded_bytes == {"other": 4 * 4096} and not each.bytes_over("ring")
    assert shared.cycles < 0.4 * each.cycles


def test_statistics_by_layer() -> None:
    parts = [
        segments(64) + receivers(0, 3) + f"li t4, {DATA}\nslli t5, a0, 6\n"
        + "nmp_load 1, mb0, t4, t5\n" + wait(1, 2),
        segments(32) + "slli t4, a0, 5\nli t5, 0\nnmp_forward 1, t4, t5\n" + wait(1, 2),
        receivers(0, 0) + forward("nmp_forward", 512, 0),
        "li t6, 1\n" + EXIT,
    ]
    layers = np.repeat([0, 1, 1, -1], [instructions(part) for part in parts]).astype(np.int32)
    found = NmpSimulator(
        small_machine(2, 1), assemble("".join(parts), 0x8000_0000, isa=NMP_ISA), 0x8000_0000,
        DRAM_BYTES,
        layer_names=("load", "forward"), layer_of=layers,
        stream_of=np.ones(len(layers), np.int8),
    )  # fmt: skip
    found.run(0x8000_0000)
    statistics, _ = found.run(0x8000_0000)
    load, forwards = statistics.layers
    assert load.bytes_by_link == {
        "loaded": {"in": 128}, "stored": {}, "ring": {"in": 128}, "forwarded": {},
    }  # fmt: skip
    assert forwards.bytes_by_link == {
        "loaded": {}, "stored": {}, "ring": {"in": 64}, "forwarded": {"in": 128},
    }  # fmt: skip
    assert load.moved_bytes == 128 and forwards.moved_bytes == 0 == forwards.bursts
    assert statistics.bytes_over("ring") == {"in": 192}
    # both cores get all that is loaded, and each what it forwards: once to both, once to itself
    used = load.bytes_by_memory
    assert (used["dram"].read_bytes, used["mb0"].written_bytes) == (128, 256)
    used = forwards.bytes_by_memory
    assert (used["mb2"].read_bytes, used["mb0"].written_bytes) == (128, 64 * 2 + 64)
    assert used["dram"] == used["mb1"] == used["bias"] == MovedBytes(0, 0)


# ---- traps


@pytest.mark.parametrize(
    "text",
    [
        segments(8) + receivers(0, 2) + transfer("nmp_load", 1, "mb0", DATA),
        segments(8) + receivers(0, 3) + transfer("nmp_mload", 1, "bias", DATA),
        segments(8) + forward("nmp_forward", 0, 0),
        dma(ELEMENT_BYTES=2) + forward("nmp_forward3d", 0, 0),
    ],
)
def test_machine_without_rings(text: str) -> None:
    run(only(0, text) + EXIT, small_machine(2, 2))
    trap = trapped(only(0, text) + EXIT, without_ring(2, 2))
    assert trap.code == TrapCode.NO_RING and "ring bus" in str(trap)
    assert "machine small has none" in str(trap) and "[ring]" in str(trap)


def test_without_rings_the_own_tle_can_be_named() -> None:
    text = segments(8) + receivers(3, 2) + transfer("nmp_mload", 1, "mb0", DATA)
    found, _ = run(only(2, text) + EXIT, without_ring(2, 2))
    assert found._state.sem_tlt[:, 1].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("mnemonic", ["nmp_mload", "nmp_forward"])
@pytest.mark.parametrize(
    ("tlts", "tles", "register"),
    [(16, 0, "RECEIVER_TLTS"), (-1, 0, "RECEIVER_TLTS"), (0, 8, "RECEIVER_TLES"),
     (1, -8, "RECEIVER_TLES")],
)  # fmt: skip
def test_receivers_that_do_not_exist(mnemonic: str, tlts: int, tles: int, register: str) -> None:
    send = transfer(mnemonic, SEM, "mb0", DATA)
    if mnemonic == "nmp_forward":
        send = forward(mnemonic, 0, 0)
    trap = trapped(segments(8) + receivers(tlts, tles) + send + EXIT, small_machine(TLES, TLTS))
    assert trap.code == TrapCode.BAD_CONFIGURATION and trap.place.instruction.startswith(mnemonic)
    assert f"DMA register {register} has the unusable value {tlts if tles == 0 else tles}" in str(
        trap
    )


def test_32_tlts_fit_the_mask() -> None:
    text = segments(8) + receivers(-2, 0) + transfer("nmp_mload", SEM, "mb0", DATA)
    found, _ = run(only(0, text) + EXIT, small_machine(1, 32))
    assert found._state.sem_tlt[:, SEM].tolist() == [0] + [1] * 31


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (segments(64) + forward("nmp_forward", 8192 - 63, 0), TrapCode.TILE_TOO_LARGE,
         "8129..8193 of MB0, which has 8192"),
        (segments(64) + forward("nmp_forward", -1, 0), TrapCode.TILE_TOO_LARGE, "of MB0"),
        (segments(64) + forward("nmp_forward", 0, 8192 - 63), TrapCode.TILE_TOO_LARGE,
         "8129..8193 of MB2, which has 8192"),
        (segments(64, 2, 4096, 2) + forward("nmp_forward", 0, 2017), TrapCode.TILE_TOO_LARGE,
         "4034..8194 of MB2"),
        (segments(64) + forward("nmp_forward", 0, -1), TrapCode.TILE_TOO_LARGE, "of MB2"),
        (segments(64, element_bytes=2) + forward("nmp_forward", 1, 0),
         TrapCode.MISALIGNED_ACCESS, "at 0x1"),
        (segments(63, element_bytes=2) + forward("nmp_forward", 0, 0),
         TrapCode.BAD_CONFIGURATION, "SEGMENT_BYTES has the unusable value 63"),
        (segments(64, -1) + forward("nmp_forward", 0, 0), TrapCode.BAD_CONFIGURATION, "SEGMENTS"),
        (dma(ELEMENT_BYTES=3) + forward("nmp_forward3d", 0, 0), TrapCode.BAD_CONFIGURATION,
         "ELEMENT_BYTES has the unusable value 3"),
        (dma(ELEMENT_BYTES=2, ROW_STRIDE=7) + forward("nmp_forward3d", 0, 0),
         TrapCode.BAD_CONFIGURATION, "ROW_STRIDE has the unusable value 7"),
        (dma(ELEMENT_BYTES=2, BOX_ROWS=-1) + forward("nmp_forward3d", 0, 0),
         TrapCode.BAD_CONFIGURATION, "BOX_ROWS"),
        (segments(64) + "li t4, 0\nli t5, 0\nnmp_forward 13, t4, t5\n", TrapCode.SEMAPHORE,
         "semaphore 13"),
    ],
)  # fmt: skip
def test_forwards_check_what_they_are_told(text: str, code: TrapCode, message: str) -> None:
    trap = trapped(text + EXIT, small_machine(dme={"semaphores": 12}))
    assert trap.code == code and message in str(trap)
    assert trap.place.instruction.startswith("nmp_forward")


OPERATION = mac(**CONV) + "nmp_conv2d 1, zero\n"


@pytest.mark.parametrize("ports", [1, 2])
@pytest.mark.parametrize(
    ("offset", "clash"), [(0, True), (280, True), (288, False), (4096, False)]
)
def test_a_load_from_another_tle_and_the_mac_unit(offset: int, clash: bool, ports: int) -> None:
    """Whichever issues first, the other traps. The convolution reads MB0 up to 288."""
    machine = small_machine(2, 1, memories={"ports": ports})
    load = segments(8) + receivers(0, 2) + transfer("nmp_load", 2, "mb0", DATA, offset)
    for sender, victim in ((load, OPERATION), (spin(300) + load, OPERATION),
                           (load, spin(100) + OPERATION)):  # fmt: skip
        text = f"bnez a0, one\n{sender}j end\none: {victim}{wait(2)}end: {EXIT}"
        if ports == 2 and not clash:
            run(text, machine)
            continue
        trap = trapped(text, machine)
        assert trap.code == TrapCode.HAZARD and "MB0 of core 1" in str(trap)
    waited = f"bnez a0, one\n{load}j end\none: {wait(2)}{OPERATION}end: {EXIT}"
    run(waited, machine)


@pytest.mark.parametrize("ports", [1, 2])
@pytest.mark.parametrize(
    ("source", "local", "memory"),
    [(0, 4096, "MB2"), (127, 4096, "MB2"), (128, 4096, ""), (128, 280, "MB0"), (128, 288, "")],
)
def test_a_forward_and_the_mac_unit(source: int, local: int, memory: str, ports: int) -> None:
    """The convolution writes 128 elements of MB2 and reads 288 bytes of MB0."""
    machine = small_machine(memories={"ports": ports})
    send = segments(4, element_bytes=2) + forward("nmp_forward", local, source)
    for text in (OPERATION + send, send + OPERATION):
        run(text.replace(OPERATION, OPERATION + wait(1)).replace(send, send + wait(SEM)) + EXIT,
            machine)  # fmt: skip
        if ports == 2 and not memory:
            run(text + EXIT, machine)
            continue
        trap = trapped(text + EXIT, machine)
        assert trap.code == TrapCode.HAZARD
        names = [memory] if ports == 2 else ["MB0", "MB2"]  # with one port it uses both
        assert any(f"{name} of core 0 while its MAC unit" in str(trap) for name in names)


@pytest.mark.parametrize(
    ("receiving", "offset", "memory", "races"),
    [
        ((0, 1), 0, "mb0", True), ((0, 1), 60, "mb0", True), ((0, 1), 64, "mb0", False),
        ((0, 1), 0, "mb1", False), ((0, 4), 0, "mb0", False), ((0, 7), 0, "mb0", True),
        ((4, 1), 0, "mb0", False), ((2, 5), 8, "mb0", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("tles", [0, 1, 3])
def test_transfers_of_two_engines_to_the_same_bytes(
    tles: int, receiving: tuple[int, int], offset: int, memory: str, races: bool
) -> None:
    """TLE 0 loads 64 bytes for two of its TLTs or more, TLE 1 sends to some of the machine."""
    load = segments(64) + receivers(3, tles) + transfer("nmp_mload", 1, "mb0", DATA)
    send = segments(64) + receivers(*receiving) + transfer("nmp_mload", 2, memory, DATA, offset)
    text = f"li t0, 4\nbeq a0, t0, one\nbnez a0, end\n{load}{wait(1)}j end\none: {{}}{send}end: "
    run(text.format(spin(400)) + EXIT, small_machine(3, 4))
    if not races:
        run(text.format("") + EXIT, small_machine(3, 4))
        return
    trap = trapped(text.format("") + EXIT, small_machine(3, 4))
    assert trap.code == TrapCode.RACE and trap.place.instruction.startswith("nmp_mload")
    core = 1 if receiving[0] == 2 else 0
    assert f"bytes of MB0 of core {core} that" in str(trap) and "transfer of 0x8" in str(trap)


def test_empty_transfers_disturb_nobody() -> None:
    send = segments(0) + forward("nmp_forward", 0, 0) + transfer("nmp_load", 2, "mb0", DATA)
    run(OPERATION + send + EXIT)
    run(send + OPERATION + EXIT)


def test_a_run_after_a_trap_starts_afresh() -> None:
    """Transfers over the ring that were under way are forgotten."""
    text = segments(64) + receivers(0, 3) + transfer("nmp_load", 2, "mb0", DATA)
    found = simulator(only(0, text + "beqz a1, only\nebreak\n") + EXIT, small_machine(2, 1))
    for _ in range(2):
        with pytest.raises(Trap, match="ebreak"):
            found.run(0x8000_0000, {11: 1})
        assert found._state.ring_queued[0] == 1
        found.run(0x8000_0000)
        assert found._state.ring_queued[0] == 0
