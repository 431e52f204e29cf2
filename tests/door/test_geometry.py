"""Slices, parts, windows, broadcasts and work of calls, against NumPy or counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.door.flows import call, const, of, randoms, x
from tvm_npu.door.dataflow import Dataflow, Result
from tvm_npu.door.geometry import channel_vector, pool_windows, slice_bounds, split_begins
from tvm_npu.door.work import NONE, call_work, total


@given(st.data())
def test_slices_are_numpy_s(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=4, max_size=4)))
    axes = data.draw(
        st.lists(st.integers(-4, 3), min_size=1, max_size=4, unique_by=lambda a: a % 4)
    )
    begins = [data.draw(st.integers(-shape[axis], shape[axis])) for axis in axes]
    ends = [data.draw(st.integers(-shape[axis], shape[axis] + 9)) for axis in axes]
    steps = [data.draw(st.integers(1, 3)) for _ in axes]
    made = call(
        "strided_slice", x(*shape), to=shape, begin=begins, end=ends, strides=steps, axes=axes
    )
    values = np.arange(np.prod(shape)).reshape(shape)
    wanted = [slice(None)] * 4
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        wanted[axis % 4] = slice(begin, end, step)
    got = values[tuple(slice(begin, end, step) for begin, end, step in slice_bounds(made))]
    np.testing.assert_array_equal(got, values[tuple(wanted)])


def test_slices_by_size() -> None:
    sizes = {"begin": [0, -3], "end": [-1, 2], "slice_mode": "size"}
    made = call("strided_slice", x(2, 8, 3, 3), to=(2, 2, 3, 3), **sizes)
    assert slice_bounds(made) == ((0, 2, 1), (5, 7, 1), (0, 3, 1), (0, 3, 1))


@given(st.integers(1, 5), st.integers(1, 4))
def test_equal_parts_are_numpy_s(parts: int, size: int) -> None:
    shape = (1, parts * size, 2, 2)
    made = call(
        "split", x(*shape), to=[(1, size, 2, 2)] * parts, axis=-3, indices_or_sections=parts
    )
    found = np.split(np.arange(parts * size), parts)
    assert split_begins(made) == tuple(int(part[0]) for part in found)


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2))
def test_windows_of_a_rounded_up_pool_lie_in_the_padding(
    extent: int, kernel: int, stride: int, before: int
) -> None:
    out = max(-(-(extent + 2 * before - kernel) // stride) + 1, 1)
    made = call(
        "avg_pool2d", x(1, 1, extent, extent), to=(1, 1, out, out),
        pool_size=kernel, strides=stride, padding=before,
    )  # fmt: skip
    (rows, _), (step, _), (top, _, bottom, _) = pool_windows(made)
    assert (rows, step, top) == (kernel, stride, before) and bottom >= before
    assert (out - 1) * step + rows <= top + extent + bottom


@given(st.data())
def test_channel_vectors_broadcast_to_the_same_array(data: st.DataObject) -> None:
    shape = (2, 3, 2, 2)
    rank = data.draw(st.integers(0, 5))
    kept = [data.draw(st.booleans()) for _ in range(rank)]
    full = (1, *shape)[5 - rank :] if rank else ()
    own = tuple(extent if keep else 1 for extent, keep in zip(full, kept, strict=True))
    values = randoms(data.draw(st.integers(0, 5)), *own)
    if data.draw(st.booleans()):
        values = np.full_like(values, 0.5)
    vector = channel_vector(values, shape)
    whole = np.broadcast_to(values, (1, *shape))[0]
    uniform = np.all(whole == whole[:1, :, :1, :1])
    assert (vector is not None) == bool(uniform)
    if vector is not None:
        np.testing.assert_array_equal(np.broadcast_to(vector[:, None, None], shape), whole)


def test_macs_are_those_of_the_loops() -> None:
    grouped = call("conv2d", x(1, 6, 9, 9), const(4, 3, 3, 2), to=(1, 4, 7, 8), groups=2)
    assert call_work(grouped).macs == 4 * 7 * 8 * 3 * 3 * 2
    blocked = call(
        "contrib_conv2d_NCHWc", x(1, 2, 9, 9, 8), x(4, 2, 3, 3, 8, 8), to=(1, 4, 9, 9, 8),
        kernel_size=(3, 3), data_layout="NCHW8c", kernel_layout="OIHW8i8o", out_layout="NCHW8c",
    )  # fmt: skip
    assert call_work(blocked).macs == 32 * 81 * 16 * 9
    last = call(
        "conv2d", x(1, 9, 9, 6), const(3, 3, 1, 6), to=(1, 7, 7, 6),
        groups=6, data_layout="NHWC", kernel_layout="HWOI",
    )  # fmt: skip
    assert call_work(last).macs == 6 * 49 * 9
    turned = call("conv2d_transpose", x(1, 4, 5, 5), const(4, 3, 2, 2), to=(1, 3, 10, 10))
    turned_macs = 4 * 25 * 3 * 4
    assert call_work(turned).macs == turned_macs
    dense = call("matmul", x(7, 2), const(7, 5), to=(2, 5), transpose_a=True)
    assert call_work(dense).macs == 2 * 5 * 7
    pool = call("max_pool2d", x(1, 4, 8, 8), to=(1, 4, 4, 4), pool_size=2)
    assert (call_work(pool).macs, call_work(pool).weight) == (0, 4 * 64)
    assert call_work(call("dense", x("n", 4), const(5, 4), to=("n", 5))) is NONE
    assert total([call_work(pool), call_work(turned)]).macs == turned_macs


def test_outputs_come_first_to_last() -> None:
    data = x(1, 2, 4, 4)
    first, second = (of(name, data, to=(1, 2, 4, 4)) for name in ("first", "second"))
    assert isinstance(first, Result)
    assert [one.name for one in Dataflow((data,), (second, first)).calls] == ["second", "first"]


def test_a_window_that_covers_the_map() -> None:
    made = call("global_avg_pool2d", x(1, 4, 5, 7), to=(1, 4, 1, 1))
    assert pool_windows(made) == ((5, 7), (1, 1), (0, 0, 0, 0))
    with pytest.raises(ValueError, match="has no static shape"):
        pool_windows(call("global_avg_pool2d", x(1, 4, "h", 7), to=(1, 4, 1, 1)))
