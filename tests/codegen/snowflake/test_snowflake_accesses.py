"""Which transfers touch the same bytes: none is missed; rows, columns and planes
are told apart."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_npu.codegen.program.parts import Segment
from tvm_npu.codegen.snowflake.steps.objects import Move, Place
from tvm_npu.sim.snowflake.isa import WORD_BYTES, SnowflakeStream

ROWS = 5


@st.composite
def parts_of_a_map(draw: st.DrawFn) -> tuple[Move, Move]:
    """Two boxes, each as one transfer: planes of pixels of a row, or pixels of several rows."""
    columns, planes = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    pixel, row = WORD_BYTES * planes, WORD_BYTES * planes * columns
    found = []
    for _ in range(2):
        first, column = draw(st.integers(0, ROWS - 1)), draw(st.integers(0, columns - 1))
        offset, across = first * row + column * pixel, draw(st.integers(1, columns - column))
        if draw(st.booleans()):
            plane = draw(st.integers(0, planes - 1))
            words = draw(st.integers(1, planes - plane))
            found.append(move(offset + WORD_BYTES * plane, words, across, pixel))
        else:
            found.append(move(offset, across * planes, draw(st.integers(1, ROWS - first)), row))
    return found[0], found[1]


def move(offset: int, words: int, runs: int, step: int) -> Move:
    return Move(
        Place.MBUF, 1, Segment.ACTIVATIONS, offset, 0, words, SnowflakeStream.IN, runs=runs,
        memory_step=step,
    )  # fmt: skip


def bytes_of(one: Move) -> set[int]:
    runs = (one.offset + run * one.memory_step for run in range(one.runs))
    return {at + byte for at in runs for byte in range(WORD_BYTES * one.words)}


@settings(max_examples=examples(1000))
@given(parts_of_a_map())
def test_transfers_meet_where_they_touch_the_same_bytes(moves: tuple[Move, Move]) -> None:
    first, second = moves
    meet = first.in_memory.meets(second.in_memory)
    assert meet == second.in_memory.meets(first.in_memory)
    touches = not bytes_of(first).isdisjoint(bytes_of(second))
    one_of_each = first.memory_step != second.memory_step
    assert meet == touches if one_of_each else meet >= touches
