"""Tiles of dilated windows: what they hold, and where."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codegen.snowflake.snowflake_cases import MACHINES, graph_of, machine, outcome
from tests.codegen.snowflake.test_snowflake_clusters import conv_of
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.snowflake.steps.windows import Axis, cut, even_sizes


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


@given(tiles(), st.integers(1, 40))
def test_the_largest_tile_is_known_without_the_others(
    tile: tuple[Axis, int, int, int], size: int
) -> None:
    axis, begin, _, _ = tile
    for count in (axis.out - begin, max(1, (axis.out - begin) // 2)):
        tiles = cut(begin, count, size)
        assert axis.largest(begin, count, size) == max(axis.held(*one)[1] for one in tiles)


@given(tiles())
def test_windows_in_the_padding_alone_are_found_near_the_borders(
    tile: tuple[Axis, int, int, int]
) -> None:
    axis = tile[0]
    assert axis.covers == all(axis.taps(at)[1] > 0 for at in range(axis.out))


def test_even_sizes_are_those_of_every_number_of_tiles() -> None:
    for total in (*range(1, 130), 1000):
        every = dict.fromkeys(-(-total // parts) for parts in range(1, total + 1))
        assert list(even_sizes(total)) == list(every)


def test_even_sizes_of_long_rows_do_not_take_a_step_a_pixel() -> None:
    """There are about twice the square root of them."""
    assert len(list(even_sizes(10**12 // 10**3))) < 70_000
    assert next(even_sizes(10**15)) == 10**15


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
