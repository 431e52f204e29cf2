"""A block on an NMP, as a question and as a plan.

A block is a convolution, with or without a window behind it (its head), and a pointwise
convolution behind that. The TLTs that share a place of the OFM and have different filters of the
head make a *crew*: what they make is passed on to all of them over the rings, and each multiplies
it by its own filters of the pointwise convolution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.turns import tlt_filters
from tvm_npu.codegen.plan.problem import ConvProblem, Prediction, share
from tvm_npu.sim.nmp.machine import NmpMachine


@dataclass(frozen=True)
class BlockProblem:
    """``head``, and what runs behind it: ``filters`` of a pointwise convolution over all channels
    that the head makes, which may add a residual; ``adds_input``: what the head reads."""

    head: ConvProblem
    filters: int
    has_residual: bool = False
    adds_input: bool = False

    @property
    def element_bytes(self) -> int:
        return self.head.element_bytes

    @property
    def point(self) -> ConvProblem:
        """The pointwise convolution by itself."""
        head = self.head
        rows, columns = head.out_rows, head.out_columns
        return ConvProblem(
            self.filters, head.filters * head.planes, 1, rows, columns, rows, columns, (1, 1),
            (1, 1), (1, 1), (0, 0, 0, 0), head.element_bytes, self.has_residual,
        )  # fmt: skip


@dataclass(frozen=True)
class BlockPlan:
    """How a block runs: ``head`` as its plan says, in multicast mode, but for its end.

    The loops go over places, then over the head's filters (with all of a TLT's in one tile it is
    the same to hold the weights first, WS). At the end of a tile of filters, its crew works in
    rounds of ``passed`` channels a TLT: each TLT passes its own on to MB0 of the whole crew, one
    TLT's behind the other's, and adds the products with its filters of the pointwise convolution
    to an OUT tile, which stays in MB2, behind the head's, until the last filters of the place are
    through. Then comes the residual, the end of the pointwise convolution, and the store.

    With two ``slots`` what is passed on in a round arrives in MB0 while the MAC unit works on the
    round before; the slots take turns. With one a round begins when all of the crew are through
    with the one before.

    Crews are as large as tlt_filters * filter_slices; all members have equally many filters of the
    head, in whole tiles, and tiles are whole rounds. Filters of the pointwise convolution are dealt
    to the crew as `point_share` says. Its weights lie in DRAM in the order of rounds; a TLT loads
    its own of a tile of the head's filters with the first step of that, or of all, where they are
    one tile, before the layer begins. With ``residual_on_chip`` the residual comes from IN tiles
    (`plan.input_residual`).
    """

    head: ConvPlan
    passed: int
    prediction: Prediction | None = field(default=None, compare=False)
    planner: str = ""
    slots: Literal[1, 2] = 1
    residual_on_chip: bool = False


def crew_size(plan: BlockPlan, machine: NmpMachine) -> int:
    """TLTs that share a place."""
    return plan.head.filter_slices * tlt_filters(plan.head, machine)


def point_share(
    filters: int, plan: BlockPlan, machine: NmpMachine, tle_run: int, run: int
) -> tuple[int, int]:
    """(begin, count) of the filters of the pointwise convolution that a member of a crew has, in
    filter slice ``tle_run`` of TLEs and filter part ``run`` of its TLE."""
    begin, count = share(filters, plan.head.filter_slices, tle_run)
    own, number = share(count, tlt_filters(plan.head, machine), run)
    return begin + own, number


def point_shares(
    filters: int, plan: BlockPlan, machine: NmpMachine
) -> Iterator[tuple[int, int]]:
    """`point_share` of all members of a crew."""
    for tle_run in range(plan.head.filter_slices):
        for run in range(tlt_filters(plan.head, machine)):
            yield point_share(filters, plan, machine, tle_run, run)


def most_point_filters(problem: BlockProblem, plan: BlockPlan, machine: NmpMachine) -> int:
    """Of one TLT."""
    return point_share(problem.filters, plan, machine, 0, 0)[1]


def made_filters(problem: BlockProblem, plan: BlockPlan) -> int:
    """Channels that a TLT makes in a tile of the head's filters."""
    return plan.head.tile_m * problem.head.planes


def keeps_point_weights(problem: BlockProblem, plan: BlockPlan, machine: NmpMachine) -> bool:
    """The pointwise convolution's weights are loaded once for the whole layer."""
    return plan.head.tile_m * crew_size(plan, machine) >= problem.head.filters


def constants_come_late(plan: BlockPlan) -> bool:
    """Biases and weights of what is behind the head's products come under those of the first
    place."""
    return plan.head.buffers == 2


def with_prediction(plan: BlockPlan, prediction: Prediction, planner: str) -> BlockPlan:
    return replace(plan, prediction=prediction, planner=planner)
