"""Runs of chains as steps of commands, and what chains and runs take: see `plan.run` for what they
do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tvm_npu.codegen.ops import FixedRun
from tvm_npu.codegen.tiles.emit.chains import ChainCommands, requantizing
from tvm_npu.codegen.tiles.emit.interlock import Clocks, TimedStep, timed_steps
from tvm_npu.codegen.tiles.emit.layer import Operands
from tvm_npu.codegen.tiles.emit.pipeline import StepCommands
from tvm_npu.codegen.tiles.plan.chain import (
    ChainPlan,
    ChainProblem,
    ChainTiles,
    Seat,
    chain_places,
)
from tvm_npu.codegen.tiles.plan.run import RunPlan, RunProblem, run_places, run_seats, run_tiles
from tvm_npu.sim.tiles.machine import TileMachine

_NOWHERE = 0
_APART = 1 << 22
"""Bytes."""


def run_steps(
    layer: FixedRun, problem: RunProblem, plan: RunPlan, machine: TileMachine, operands: Operands
) -> Iterator[StepCommands]:
    """Those of one chain after the other, under a plan without a fault. ``operands`` have the
    `parts` of all convolutions."""
    tiles = run_tiles(problem, plan)
    addresses = dict(zip(layer.inputs, operands.inputs, strict=True))
    parts = iter(operands.parts)
    for block, one, places in zip(
        layer.blocks, tiles, run_places(tiles, plan.buffers, machine), strict=True
    ):
        own = Operands(
            tuple(addresses.get(tensor, _NOWHERE) for tensor in block.inputs), operands.output,
            parts=tuple(next(parts) for _ in one.problem.convolutions),
        )  # fmt: skip
        yield from ChainCommands(requantizing(block), one, places, machine, own).steps()


@lru_cache(maxsize=1 << 12)
def chain_cycles(problem: ChainProblem, plan: ChainPlan, machine: TileMachine) -> float:
    """Of a chain by itself, under a plan without a fault."""
    tiles = ChainTiles(problem, plan.tile_rows, plan.tile_channels, plan.keeps_rows)
    steps = _chain_steps(tiles, plan.buffers, None, 0, machine)
    return Clocks().behind(steps, plan.buffers).end


def run_cycles(problem: RunProblem, plan: RunPlan, machine: TileMachine) -> float:
    """Of a plan without a fault."""
    return _clocks(run_tiles(problem, plan), plan.buffers, machine).end


@lru_cache(maxsize=1 << 12)
def _clocks(tiles: tuple[ChainTiles, ...], buffers: int, machine: TileMachine) -> Clocks:
    """Behind the steps of ``tiles``: runs that begin alike have them in common."""
    if not tiles:
        return Clocks()
    seat = Seat(run_seats(tiles)[-1].turn % buffers, 0)
    steps = _chain_steps(tiles[-1], buffers, seat, len(tiles) % 2, machine)
    return _clocks(tiles[:-1], buffers, machine).behind(steps, buffers)


@lru_cache(maxsize=1 << 10)
def _chain_steps(
    tiles: ChainTiles, buffers: int, seat: Seat | None, area: int, machine: TileMachine
) -> tuple[TimedStep, ...]:
    """Of a chain, wherever that lies: its constants are far from each other, and its biases from
    those of the chain before."""
    places = chain_places(tiles, buffers, machine, seat)
    assert places is not None  # there is no fault
    count = len(tiles.problem.convolutions)
    parts = tuple(((2 * at + 1) * _APART, (2 * at + 2) * _APART) for at in range(count))
    somewhere = Operands((0, 0), 0, parts=parts)
    steps = ChainCommands(({},) * count, tiles, places, machine, somewhere).steps()
    return tuple(timed_steps(steps, machine, tiles.problem.element_bytes, buffers, area))
