"""Runs on tile machines: chains that follow each other as one layer; the maps between them never
leave the chip.

A chain's OFM, once it is finished, is copied by the engine from the output memory to the begin of
the input memory, where it is the IN tile of the next chain, whole, and what that adds, if it adds
its own input. The copy comes when nobody reads the chain's own IN tile any more, so both may lie at
the same place. Only the first chain may work in several strips: its IN tiles lie behind the map
then, to which each strip adds its rows. Weights of all chains take turns in the halves of their
memory where there are two buffers, so that those of a chain come beside the work of the one before.
The biases of all chains lie in their memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_npu.codegen.plan.faults import PlanFault
from tvm_npu.codegen.tiles.plan.chain import (
    ChainPlaces,
    ChainPlan,
    ChainProblem,
    ChainTiles,
    Seat,
    chain_needs,
    chain_places,
    plan_fault,
    room_fault,
    shared_fault,
)
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine


@dataclass(frozen=True)
class RunProblem:
    """Each of ``chains`` takes the OFM of the one before as its IFM."""

    chains: tuple[ChainProblem, ...]

    @property
    def element_bytes(self) -> int:
        return self.chains[0].element_bytes


@dataclass(frozen=True)
class RunPlan:
    """A plan for each chain, all with the same buffers."""

    plans: tuple[ChainPlan, ...]
    moved_bytes: int
    planner: str = ""

    @property
    def buffers(self) -> int:
        return self.plans[0].buffers


def run_tiles(problem: RunProblem, plan: RunPlan) -> tuple[ChainTiles, ...]:
    """What each plan cuts its chain into."""
    last = len(plan.plans) - 1
    return tuple(
        ChainTiles(
            chain, own.tile_rows, own.tile_channels, own.keeps_rows, held=at > 0, kept=at < last
        )
        for at, (chain, own) in enumerate(zip(problem.chains, plan.plans, strict=True))
    )


def run_seats(tiles: tuple[ChainTiles, ...]) -> tuple[Seat, ...]:
    """Of each chain."""
    seats, seat = [], Seat(0, 0)
    for one in tiles:
        seats.append(seat)
        sets = 1 if one.weights_stay else len(one.strips) * len(one.rounds)
        seat = Seat(seat.turn + sets, seat.biases + one.bias_bytes)
    return tuple(seats)


def run_places(
    tiles: tuple[ChainTiles, ...], buffers: int, machine: TileMachine
) -> tuple[ChainPlaces, ...]:
    """Of each chain of a plan without a fault."""
    places = []
    for one, seat in zip(tiles, run_seats(tiles), strict=True):
        found = chain_places(one, buffers, machine, seat)
        assert found is not None  # there is no fault
        places.append(found)
    return tuple(places)


def run_fault(problem: RunProblem, plan: RunPlan, machine: TileMachine) -> PlanFault | None:
    """The first fault of ``plan``: what its plans say, one by one, and how much room they take."""
    count = len(problem.chains)
    if len(plan.plans) != count or count < 2:
        return PlanFault("chains with a plan", len(plan.plans), f"{max(count, 2)}, all of the run")
    if isinstance(machine.memories, SharedMemory):
        return shared_fault(machine)
    for at, (chain, own) in enumerate(zip(problem.chains, plan.plans, strict=True)):
        fault = plan_fault(chain, own)
        if fault is None and own.buffers != plan.buffers:
            fault = PlanFault("buffers", own.buffers, f"{plan.buffers}, as of the first chain")
        if fault is None and at > 0 and own.tile_rows != chain.point.rows:
            fault = PlanFault("tile_rows", own.tile_rows, f"{chain.point.rows}, all of the OFM")
        if fault is not None:
            return _of_chain(at, fault)
    tiles = run_tiles(problem, plan)
    for at, (one, seat) in enumerate(zip(tiles, run_seats(tiles), strict=True)):
        fault = room_fault(chain_needs(one, plan.buffers, machine, seat))
        if fault is not None:
            return _of_chain(at, fault)
    return None


def _of_chain(at: int, fault: PlanFault) -> PlanFault:
    return replace(fault, what=f"chain {at}: {fault.what}")
