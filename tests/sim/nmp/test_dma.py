"""What DMA transfers move: boxes and segments against NumPy, multicast against single loads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.sim.nmp.programs import (
    BASE,
    CONV,
    DATA,
    EXIT,
    dma,
    mac,
    read,
    run,
    segments,
    simulator,
    small_machine,
    transfer,
    wait,
)
from tvm_npu.sim.traps import Trap

SOURCE, TARGET = DATA, DATA + 0x4000
VALUES = np.random.default_rng(3).integers(-128, 128, 4096).astype(np.int8)

MB2_FROM_MB0 = mac(IN_ADDRESS=0, OUT_ADDRESS=0, OUT_CHANNELS=1, OUT_ROWS=1, SHIFT_A=0)


def copy_to_mb2(elements: int, element_bytes: int) -> str:
    """MB2[k] = MB0[k]."""
    count = mac(OUT_COLUMNS=elements, ELEMENT_BYTES=element_bytes)
    return MB2_FROM_MB0 + count + "nmp_veop 1, copy\n" + wait(1)


extents = st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 9))
starts = st.tuples(st.integers(-6, 6), st.integers(-8, 8), st.integers(-12, 12))


def padded_box(tensor: np.ndarray, start: tuple[int, ...], box: tuple[int, ...], fill: int):
    result = np.full(box, fill, tensor.dtype)
    for index in np.ndindex(*box):
        place = tuple(s + i for s, i in zip(start, index, strict=True))
        if all(0 <= p < n for p, n in zip(place, tensor.shape, strict=True)):
            result[index] = tensor[place]
    return result


@given(
    st.sampled_from([1, 2]), extents, starts, extents, st.integers(-128, 127),
    st.integers(0, 3), st.integers(0, 8), st.booleans(), st.booleans(),
)  # fmt: skip
@settings(max_examples=examples(120), deadline=None)
def test_boxes(
    element_bytes: int, shape: tuple[int, int, int], start: tuple[int, int, int],
    box: tuple[int, int, int], fill: int, row_gap: int, channel_gap: int, multicast: bool,
    timing: bool,
) -> None:  # fmt: skip
    """A box of a tensor with gaps between its rows and channels goes in, and back out elsewhere."""
    dtype = {1: np.int8, 2: np.int16}[element_bytes]
    memory = VALUES[: 1024 * element_bytes].view(dtype)
    row = shape[2] + row_gap
    channel = shape[1] * row + channel_gap
    tensor = np.lib.stride_tricks.as_strided(
        memory, shape, (channel * element_bytes, row * element_bytes, element_bytes)
    )
    registers = {
        "CHANNELS": shape[0], "ROWS": shape[1], "COLUMNS": shape[2],
        "CHANNEL_STRIDE": channel * element_bytes, "ROW_STRIDE": row * element_bytes,
        "START_CHANNEL": start[0], "START_ROW": start[1], "START_COLUMN": start[2],
        "BOX_CHANNELS": box[0], "BOX_ROWS": box[1], "BOX_COLUMNS": box[2], "FILL": fill,
        "ELEMENT_BYTES": element_bytes,
    }  # fmt: skip
    elements = int(np.prod(box))
    text = (
        "bnez a0, end\n"
        + dma(**registers)
        + transfer("nmp_mload3d" if multicast else "nmp_load3d", 2, "mb0", SOURCE)
        + wait(2)
        + copy_to_mb2(elements, element_bytes)
        + transfer("nmp_store3d", 3, "mb2", TARGET)
        + wait(3)
        + "end: "
        + EXIT
    )
    before = np.full(4096, 0x55, np.uint8)
    found, statistics = run(
        text, small_machine(1, 2), {SOURCE: memory, TARGET: before}, timing=timing
    )
    loaded = padded_box(tensor, start, box, fill)
    receivers = 2 if multicast else 1
    for core in range(receivers):
        mine = found._state.mb0[core, : elements * element_bytes].view(dtype)
        assert np.array_equal(mine.reshape(box), loaded)
    expected = before.copy()
    target = np.lib.stride_tricks.as_strided(
        expected.view(dtype), shape, (channel * element_bytes, row * element_bytes, element_bytes)
    )
    inside = 0
    for index in np.ndindex(*shape):
        place = tuple(i - s for i, s in zip(index, start, strict=True))
        if all(0 <= p < n for p, n in zip(place, box, strict=True)):
            target[index] = loaded[place]
            inside += element_bytes
    assert np.array_equal(read(found, TARGET, 4096, np.uint8), expected)
    assert sum(statistics.loaded_bytes.values()) == inside
    assert sum(statistics.stored_bytes.values()) == inside


@given(
    st.sampled_from([1, 2]), st.integers(0, 5), st.integers(0, 20), st.integers(0, 50),
    st.integers(0, 9),
)  # fmt: skip
@settings(max_examples=examples(60), deadline=None)
def test_segments(element_bytes: int, count: int, size: int, stride: int, offset: int) -> None:
    size, stride = size * element_bytes, stride * element_bytes
    local = offset * element_bytes
    moved = np.concatenate(
        [VALUES[k * stride : k * stride + size] for k in range(count)] or [VALUES[:0]]
    )
    text = segments(size, count, stride, element_bytes) + transfer(
        "nmp_load", 2, "mb0", SOURCE, local
    )
    text += wait(2) + copy_to_mb2(256, element_bytes)
    text += transfer("nmp_store", 3, "mb2", TARGET, offset) + wait(3) + EXIT
    found, _ = run(text, data={SOURCE: VALUES})
    assert np.array_equal(found._state.mb0[0, local : local + len(moved)], moved)
    expected = np.zeros(1024, np.int8)
    for k in range(count):  # later segments win where they overlap
        expected[k * stride : k * stride + size] = moved[k * size : (k + 1) * size]
    assert np.array_equal(read(found, TARGET, 1024, np.int8), expected)


def test_biases_and_filters_arrive_where_they_are_used() -> None:
    machine = small_machine(1, 3)
    text = (
        "bnez a0, end\n" + segments(40) + transfer("nmp_mload", 2, "bias", SOURCE, 8)
        + transfer("nmp_mload", 2, "mb1", SOURCE + 100, 16) + "end: " + wait(2, 2) + EXIT
    )  # fmt: skip
    found, _ = run(text, machine, {SOURCE: VALUES})
    for core in range(3):
        assert np.array_equal(found._state.bias[core, 8:48], VALUES[:40])
        assert np.array_equal(found._state.mb1[core, 16:56], VALUES[100:140])


def windows(rows: int) -> str:
    """One 1x1 convolution over ``rows`` rows of 8 int16, weight 1, and its result to TARGET."""
    return (
        mac(**{**CONV, "IN_CHANNELS": 2, "IN_ROWS": rows, "IN_COLUMNS": 8, "OUT_ROWS": rows,
               "OUT_COLUMNS": 8, "KERNEL_ROWS": 1, "KERNEL_COLUMNS": 1, "OUT_CHANNELS": 3,
               "W_PITCH": 2})
        + "nmp_conv2d 1, zero\n" + wait(1) + mac(SHIFT=0, LOW=-32768, HIGH=32767)
        + "nmp_activation 1\n" + wait(1)
        + segments(3 * rows * 8 * 2, element_bytes=2)
        + f"slli t0, a0, 9\nli t4, {TARGET}\nadd t4, t4, t0\nli t5, 0\nnmp_store 3, mb2, t4, t5\n"
        + wait(3)
    )  # fmt: skip


@pytest.mark.parametrize("timing", [True, False])
@pytest.mark.parametrize("order", ["private first", "multicast first", "two multicasts", "all"])
def test_tiles_that_are_only_partly_the_same_in_all_cores(order: str, timing: bool) -> None:
    """Cores share a multicast half of MB0 and load the other half themselves: each convolves its
    own data. With two multicasts, or one for everything, all have the same."""
    private = (
        segments(64, element_bytes=2)
        + f"slli t0, a0, 7\nli t4, {SOURCE}\nadd t4, t4, t0\nli t5, 0\nnmp_load 2, mb0, t4, t5\n"
        + wait(2)
    )
    half = segments(64, element_bytes=2)
    second = "bnez a0, {0}\n" + half + transfer("nmp_mload", 4, "mb0", SOURCE + 2048, 64)
    second += "{0}: " + wait(4)
    first = "bnez a0, {0}\n" + half + transfer("nmp_mload", 4, "mb0", SOURCE + 1024)
    first += "{0}: " + wait(4)
    whole = "bnez a0, {0}\n" + segments(128, element_bytes=2)
    whole += transfer("nmp_mload", 4, "mb0", SOURCE + 1024) + "{0}: " + wait(4)
    load = {
        "private first": private + second.format("a"),
        "multicast first": second.format("a") + private,
        "two multicasts": second.format("a") + first.format("b"),
        "all": whole.format("a"),
    }[order]
    weights = segments(12) + transfer("nmp_load", 5, "mb1", SOURCE + 3072) + wait(5)
    filters = np.array([1, 0, 0, 1, 1, 1], np.int16)
    data = VALUES.copy()
    data[3072 : 3072 + 12] = filters.view(np.int8)
    data.view(np.int16)[:] = data.view(np.int16) // 2  # sums of two stay int16
    data[3072 : 3072 + 12] = filters.view(np.int8)
    found, _ = run(weights + load + windows(4) + EXIT, small_machine(1, 3), {SOURCE: data},
                   timing=timing)  # fmt: skip
    results = read(found, TARGET, (3, 256), np.int16)[:, :96].reshape(3, 3, 32)
    for core in range(3):
        own = data[core * 128 : core * 128 + 64].view(np.int16)
        if order in ("two multicasts", "all"):
            own = data[1024:1088].view(np.int16)
        other = data[2048:2112] if order != "all" else data[1088:1152]
        inputs = np.stack([own, other.view(np.int16)])
        assert np.array_equal(results[core], filters.reshape(3, 2) @ inputs), (order, core)


def test_what_every_receiver_gets_is_work() -> None:
    text = "bnez a0, end\n" + segments(1024)
    for offset in (0, 1024):
        text += transfer("nmp_mload", 2, "mb0", SOURCE, offset) + wait(2)
    found = simulator(text + "end: " + EXIT, small_machine(1, 8))
    found.run(BASE, most_work=1 << 15)
    with pytest.raises(Trap, match="products, elements and bytes"):
        found.run(BASE, most_work=8 * 1024)


def test_scalar_store_after_a_multicast_is_seen() -> None:
    """One core changes an element of the shared tile by itself."""
    text = (
        segments(12) + transfer("nmp_load", 5, "mb1", SOURCE + 3072) + wait(5)
        + "bnez a0, a\n" + segments(128) + transfer("nmp_mload", 4, "mb0", SOURCE) + "a: "
        + wait(4) + "li t0, 2\nbne a0, t0, b\nli t1, 0x10000000\nli t2, 99\nsh t2, 2(t1)\nb: "
    )  # fmt: skip
    data = np.zeros(4096, np.int8)
    data[3072 : 3072 + 12] = np.array([1, 0, 0, 1, 1, 1], np.int16).view(np.int8)
    found, _ = run(text + windows(4) + EXIT, small_machine(1, 3), {SOURCE: data})
    results = read(found, TARGET, (3, 256), np.int16)[:, :32]
    assert results[2, 1] == 99 and not results[:2].any() and results[2].sum() == 99
