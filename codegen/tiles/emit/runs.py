"""Runs of chains as steps of commands, and what they take: see `plan.run` for what they do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain as in_line

from tvm_npu.codegen.ops import FixedRun
from tvm_npu.codegen.tiles.emit.chains import ChainCommands, requantizing
from tvm_npu.codegen.tiles.emit.layer import Operands
from tvm_npu.codegen.tiles.emit.pipeline import StepCommands, StepCost, step_costs, total_cycles
from tvm_npu.codegen.tiles.plan.chain import ChainTiles, Seat, chain_places
from tvm_npu.codegen.tiles.plan.run import RunPlan, RunProblem, run_places, run_tiles
from tvm_npu.sim.tiles.machine import TileMachine

_NOWHERE = 0


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


def run_cycles(problem: RunProblem, plan: RunPlan, machine: TileMachine) -> float:
    """Of a plan without a fault. The steps of chains are walked once, whatever runs have them:
    times do not hang on where anything lies."""
    costs = (
        chain_costs(one, plan.buffers, machine) for one in run_tiles(problem, plan)
    )
    return total_cycles(in_line.from_iterable(costs), plan.buffers, machine)


@lru_cache(maxsize=1 << 12)
def chain_costs(tiles: ChainTiles, buffers: int, machine: TileMachine) -> tuple[StepCost, ...]:
    """Of the steps of a chain in a run."""
    places = chain_places(tiles, buffers, machine, Seat(0, 0))
    assert places is not None  # there is no fault
    count = len(tiles.problem.convolutions)
    nowhere = Operands((_NOWHERE, _NOWHERE), _NOWHERE, parts=((_NOWHERE, _NOWHERE),) * count)
    steps = ChainCommands(({},) * count, tiles, places, machine, nowhere).steps()
    return tuple(step_costs(steps, machine, tiles.problem.element_bytes))
