"""Cores that share an im2col buffer have the same tile, and those that have it share one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.sim.nmp.programs import (
    DATA,
    EXIT,
    dma,
    mac,
    read,
    run,
    segments,
    signal,
    small_machine,
    transfer,
    wait,
)
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.simulator import NmpSimulator

TLES, TLTS = 2, 4
CORES = TLES * TLTS
MB0 = 512
VALUES = np.random.default_rng(8).integers(1, 120, 4096).astype(np.int8)


def machine() -> NmpMachine:
    return small_machine(TLES, TLTS, memories={"mb0_bytes": MB0})


def is_receiver(core: int, sender: int, tlts: int, tles: int) -> bool:
    tle, tlt = divmod(core, TLTS)
    return bool((tlts or 15) >> tlt & 1 and (tles or 1 << sender // TLTS) >> tle & 1)


def send(number: int, sender: int, tlts: int, tles: int, begin: int, size: int, source: int) -> str:
    """Multicast of bytes from ``source`` on, after all cores have come here; receivers wait."""
    mask = sum(is_receiver(core, sender, tlts, tles) << core for core in range(CORES))
    return (
        signal(1, 1, "global")
        + f"li t0, {sender}\nbne a0, t0, sent_{number}\n"
        + wait(1, CORES, "global")
        + "li t6, 1\nnmp_release global, 6, t6\n"
        + segments(size)
        + dma(RECEIVER_TLTS=tlts, RECEIVER_TLES=tles)
        + transfer("nmp_mload", 2, "mb0", DATA + source, begin)
        + f"sent_{number}: {wait(6)}li t0, {mask}\nsrl t0, t0, a0\nandi t0, t0, 1\n"
        + f"beqz t0, went_{number}\n{wait(2)}went_{number}: "
    )


def tags(found: NmpSimulator, core: int) -> dict[int, tuple[int, int]]:
    state = found._state
    return {
        int(tag): tuple(span.tolist())
        for tag, span in zip(state.mb0_tag[core], state.mb0_span[core], strict=True)
        if tag
    }


def check_tags(found: NmpSimulator) -> None:
    """Ranges of a core are disjoint and lie in MB0; the same tag means the same content."""
    for core in range(CORES):
        spans = sorted(tags(found, core).values())
        assert all(0 <= begin < end <= MB0 for begin, end in spans)
        assert all(one[1] <= other[0] for one, other in zip(spans, spans[1:], strict=False))
    for tle in range(TLES):
        cores = range(tle * TLTS, (tle + 1) * TLTS)
        for one in cores:
            for other in cores:
                for tag in tags(found, one).keys() & tags(found, other).keys():
                    a, b = tags(found, one)[tag], tags(found, other)[tag]
                    begin, end = max(a[0], b[0]), min(a[1], b[1])
                    mb0 = found._state.mb0
                    assert np.array_equal(mb0[one, begin:end], mb0[other, begin:end])


def shared(found: NmpSimulator, cores: Sequence[int], begin: int, end: int) -> bool:
    """Whether these cores are known to have the same content there."""
    known = []
    for core in cores:
        hits = [t for t, span in tags(found, core).items() if span[0] <= begin and end <= span[1]]
        if not hits:
            return False
        known.append(hits[0])
    return len(set(known)) == 1


transfers = st.tuples(
    st.integers(0, CORES - 1), st.integers(0, 2**TLTS - 1), st.integers(0, 2**TLES - 1),
    st.integers(0, 400), st.integers(0, 110), st.integers(0, 3000),
)  # fmt: skip


@given(st.lists(transfers, min_size=1, max_size=14))
@settings(max_examples=examples(60), deadline=None)
def test_the_same_tag_means_the_same_content(sends: list[tuple[int, ...]]) -> None:
    text = "".join(send(number, *values) for number, values in enumerate(sends))
    found, _ = run(text + EXIT, machine(), {DATA: VALUES})
    check_tags(found)
    for core in range(CORES):
        expected = np.zeros(MB0, np.int8)
        for sender, tlts, tles, begin, size, source in sends:
            if is_receiver(core, sender, tlts, tles):
                expected[begin : begin + size] = VALUES[source : source + size]
        assert np.array_equal(found._state.mb0[core], expected)


PARTS = ((0, 64), (64, 32), (96, 96), (192, 8))


@given(st.permutations(PARTS), st.sampled_from([15, 3, 12, 5]), st.lists(transfers, max_size=4))
@settings(max_examples=examples(30), deadline=None)
def test_a_tile_in_parts_is_shared(
    order: list[tuple[int, int]], members: int, before: list[tuple[int, ...]]
) -> None:
    """Whatever was there before and in whatever order the parts come, from either TLE: the second
    tile at the latest is shared as a whole."""
    text = "".join(send(number, *values) for number, values in enumerate(before))
    receiving = [k for k in range(TLTS) if members >> k & 1]
    for tile in range(2):
        for k, (begin, size) in enumerate(order):
            sender = k % TLES * TLTS
            text += send(100 + 10 * tile + k, sender, members, 3, begin, size, 1000 * tile + begin)
    found, _ = run(text + EXIT, machine(), {DATA: VALUES})
    check_tags(found)
    for tle in range(TLES):
        assert shared(found, [tle * TLTS + k for k in receiving], 0, 200)


def test_two_buffers_are_known_side_by_side() -> None:
    """A tile in the upper half arrives, in parts, while the one in the lower half is in use."""
    text = ""
    for number, (begin, size) in enumerate([(0, 100), (100, 60), (256, 100), (356, 60)] * 2):
        text += send(number, number % TLES * TLTS, 15, 3, begin, size, 300 * number)
    found, _ = run(text + EXIT, machine(), {DATA: VALUES})
    check_tags(found)
    for tle in range(TLES):
        cores = range(tle * TLTS, (tle + 1) * TLTS)
        assert shared(found, cores, 0, 160) and shared(found, cores, 256, 416)
        assert not shared(found, cores, 0, 416)
    # a third tile of one core alone takes the upper half from the others' common knowledge
    found, _ = run(text + send(20, 1, 2, 1, 256, 160, 0) + EXIT, machine(), {DATA: VALUES})
    check_tags(found)
    assert shared(found, range(4), 0, 160) and not shared(found, range(4), 256, 416)
    assert shared(found, [0, 2, 3], 256, 416) and shared(found, range(4, 8), 256, 416)


def windows(rows: int, address: int) -> str:
    """A 1x1 convolution over ``rows`` rows of 8 int16 in MB0, weight 1."""
    return mac(
        IN_ADDRESS=address, IN_CHANNELS=1, IN_ROWS=rows, IN_COLUMNS=8, W_ADDRESS=0, W_PITCH=2,
        OUT_ADDRESS=0, OUT_CHANNELS=2, OUT_ROWS=rows, OUT_COLUMNS=8, KERNEL_ROWS=1,
        KERNEL_COLUMNS=1, STRIDE_ROWS=1, STRIDE_COLUMNS=1, DILATION_ROWS=1, DILATION_COLUMNS=1,
        GROUPS=1, BIAS_ADDRESS=0, ELEMENT_BYTES=2,
    ) + "nmp_conv2d 1, zero\n" + wait(1)  # fmt: skip


TARGET = DATA + 0x4000


@given(st.lists(transfers, min_size=2, max_size=8), st.integers(1, 8), st.integers(0, 100))
@settings(max_examples=examples(30), deadline=None)
def test_convolutions_see_their_own_tiles(
    sends: list[tuple[int, ...]], rows: int, address: int
) -> None:
    """After every transfer all cores convolve; what they share never shows in the values."""
    address *= 2
    text = segments(4) + dma(RECEIVER_TLTS=0, RECEIVER_TLES=0)
    text += transfer("nmp_load", 3, "mb1", DATA + 3900) + wait(3)
    for number, values in enumerate(sends):
        text += send(number, *values) + windows(rows, address)
        text += segments(2 * rows * 8, element_bytes=2)
        text += f"li t4, {TARGET + 1024 * number}\nslli t0, a0, 7\nadd t4, t4, t0\nli t5, 0\n"
        text += "nmp_store 4, mb2, t4, t5\n" + wait(4)
    data = VALUES.copy()
    data[3900:3904] = np.array([1, 0], np.int16).view(np.int8)
    found, _ = run(text + EXIT, machine(), {DATA: data})
    results = read(found, TARGET, (len(sends), CORES, 64), np.int16)
    for core in range(CORES):
        mb0 = np.zeros(MB0, np.int8)
        for number, (sender, tlts, tles, begin, size, source) in enumerate(sends):
            if is_receiver(core, sender, tlts, tles):
                mb0[begin : begin + size] = data[source : source + size]
            expected = mb0[address : address + rows * 16].view(np.int16)
            assert np.array_equal(results[number, core, : rows * 8], expected)
