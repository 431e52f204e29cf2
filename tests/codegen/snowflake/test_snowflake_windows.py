"""Tiles of dilated windows: what they hold, and where."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codegen.snowflake.snowflake_cases import MACHINES, graph_of, machine, outcome
from tests.codegen.snowflake.test_snowflake_clusters import conv_of
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.snowflake.steps.windows import Axis


@st.composite
def tiles(draw: st.DrawFn) -> tuple[Axis, int, int, int]:
    """An axis, a tile of its results (first, how many), and how many of these the tile is laid out
    for: no fewer."""
    number = lambda low, high: draw(st.integers(low, high))  # noqa: E731
    axis = Axis(number(1, 40), 30, number(1, 5), number(1, 4), number(1, 20), number(-5, 50))
    begin, count = number(0, 29), number(1, 12)
    count = min(count, axis.out - begin)
    return axis, begin, count, draw(st.sampled_from((count, number(count, 12))))


@given(tiles())
def test_a_tile_has_what_its_taps_touch(tile: tuple[Axis, int, int, int]) -> None:
    """Every tap finds its input; what the tile has beside lies between results of one tap, or of
    taps that are as near in the input."""
    axis, begin, count, layout = tile
    step = axis.tap_step(layout)
    place = {}
    for piece in axis.pieces(begin, count, step):
        for at in range(piece.count):
            assert 0 <= piece.first + at < axis.size
            assert 0 <= piece.at + at < axis.tile_span(layout)
            assert piece.at + at not in place
            place[piece.at + at] = piece.first + at
    wanted = {}
    for result in range(count):
        for tap in range(axis.kernel):
            source = axis.first(begin + result) + tap * axis.dilation
            if 0 <= source < axis.size:
                wanted[result * axis.stride + tap * step] = source
    assert wanted.items() <= place.items()
    if step < axis.dilation:
        assert len(place) <= axis.kernel * ((count - 1) * axis.stride + 1)
    if count == layout and place:
        assert axis.held(begin, count) == (min(place), len(place))
        assert max(place) - min(place) + 1 == len(place)


@given(tiles())
def test_a_tile_is_no_larger_than_its_window(tile: tuple[Axis, int, int, int]) -> None:
    axis, begin, count, _ = tile
    assert axis.tile_span(count) <= axis.span(count)
    assert axis.held(begin, count)[1] <= axis.inputs(begin, count)[1]
    if axis.dilation == 1:
        first, size = axis.inputs(begin, count)
        assert axis.tile_span(count) == axis.span(count)
        assert axis.held(begin, count) == (first - axis.first(begin), size)


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize(("rate", "macs"), ((12, 18 * 18), (24, 14 * 14)))
def test_wide_rates_on_deep_maps(name: str, rate: int, macs: int) -> None:
    """Of DeepLabV3's: whole windows do not fit an MBuf, what lies in the padding is not
    multiplied."""
    (layer,) = conv_of(960, 32, 14, 3).layers
    assert isinstance(layer, FixedConv)
    layer = replace(layer, dilation=(rate, rate), padding=(rate, rate, rate, rate))
    fixed = graph_of(layer, {"x": (960, 14, 14), "y": (32, 14, 14)})
    found = outcome(fixed, machine(name))
    assert (found.wrong, found.hazards) == (0, ())
    assert found.statistics.macs == found.statistics.runs * 960 * 32 * macs
