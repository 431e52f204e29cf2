"""Layers that are no convolutions, on machines with a mover: clocks predict what is simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import (
    SEEDS,
    elementwise_layers,
    pads,
    pools,
    random_tensors,
)
from tests.codegen.snowflake.move_cases import moves
from tests.codegen.tiles.test_tile_joins import joins
from tests.codegen.tiles.test_tile_moves import graph_of
from tests.codegen.tiles.tile_cases import tile_machine, tile_machines
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.tiles.emit.commands import ChipRange, Command, Runs, Transfer, Work
from tvm_npu.codegen.tiles.emit.interlock import MOVER, Clocks, Timed, Touched, timed_steps
from tvm_npu.codegen.tiles.emit.pipeline import TileStep
from tvm_npu.runtime.session import Session
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import TileMemory
from tvm_npu.sim.tiles.machine import TileMachine


def moved(size: Literal[1, 2]) -> st.SearchStrategy[FixedGraph]:
    return moves().map(lambda one: graph_of(one, size))


KINDS: tuple[Callable[..., st.SearchStrategy[FixedGraph]], ...] = (
    pads, pools, elementwise_layers, joins, moved
)  # fmt: skip
MACHINES = tile_machines().filter(lambda one: one.mover is not None)


@settings(max_examples=examples(40), deadline=None)
@given(st.data(), st.sampled_from(KINDS), MACHINES, SEEDS)
def test_random_layers(
    data: st.DataObject, kind: Callable[[int], st.SearchStrategy[FixedGraph]],
    machine: TileMachine, seed: int,
) -> None:  # fmt: skip
    fixed = data.draw(kind(2))
    try:
        program = compile_fixed(fixed, machine)
    except PlanningError:
        reject()
    session = Session(program)
    session.run_fixed([one[None] for one in random_tensors(fixed, seed).values()])
    (layer,), statistics = program.layers, session.statistics
    assert statistics is not None
    note(str((layer.predicted_cycles, statistics.cycles)))
    assert layer.predicted_cycles == pytest.approx(statistics.cycles, abs=4)


def test_names_of_one_memory() -> None:
    """Where memories are one, a load waits for work that writes its bytes under another name."""
    work = Work("tfinish", 0, {}, (), ChipRange(TileMemory.OUTPUT, 0, 64), operations=1 << 20)
    load = Transfer(True, TileMemory.INPUT, 0, Runs(TileMemory.ACTIVATIONS, 0, 64), Stream.IN)
    step: TileStep[Command] = TileStep((work, load), (), ())
    one, three = (
        Clocks().behind(timed_steps((step,), tile_machine(memories), 1, 1), 1)
        for memories in ((4096,), (4096, 4096, 4096))
    )
    assert one.free[0] > one.free[1] == three.free[1] > three.free[0]


class Counted(float):
    """A time on the clocks that counts how often it is compared."""

    compared = 0

    def __radd__(self, other: float) -> Counted:
        return Counted(other + float(self))

    def __gt__(self, other: float) -> bool:
        Counted.compared += 1
        return float(self) > other

    def __le__(self, other: float) -> bool:
        Counted.compared += 1
        return float(self) <= other


def test_long_moves_are_looked_through_once() -> None:
    """Loads that no work waits for; looked through at each of them, thousands took minutes."""
    Counted.compared = 0
    load = Timed(MOVER, Counted(100.0), 1, (Touched(int(TileMemory.INPUT), 0, 64, True),))
    loads = TileStep((load,) * 2000, (), ())
    clocks = Clocks().behind((loads,), 1)
    assert clocks.free[MOVER] == 200001.0 and len(clocks.touched[MOVER]) > 1900
    assert Counted.compared < 10 * 2000
