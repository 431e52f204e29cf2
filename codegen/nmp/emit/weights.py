"""How a layer's weights lie in DRAM.

"filters" is [filter][channel][kernel]. "tiles" puts every W tile of a multicast plan behind the
one that is loaded before it, [run of filters][tile of filters][tile of channels][filter][channel]
[kernel], so that each is one contiguous run; a ragged tile of filters takes the room of a whole
one, so that every tile's place is a sum of multiples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.graph import Rescaling
from tvm_npu.codegen.nmp.emit.shares import Shares, core_shares
from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem, crew_size, point_share
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.twin import made_channels
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.arithmetic import aligned
from tvm_npu.sim.nmp.filter_words import FILTER_BIAS_BITS
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.scale_words import SCALE_SHIFT_BITS


@dataclass(frozen=True)
class _Run:
    """Filters ``first`` to ``first + count`` of a group, at byte ``offset`` of its weights."""

    first: int
    count: int
    offset: int


def is_tiled(plan: ConvPlan, problem: ConvProblem) -> bool:
    """Whether the layout differs from [filter][channel][kernel]: W tiles that have all channels
    are runs anyway."""
    channels = problem.channels // problem.groups
    cuts_channels = plan.schedule != "WS" and plan.tile_n < channels
    return plan.weights == "tiles" and plan.mode == "multicast" and cuts_channels


def tile_filters(plan: ConvPlan, shares: Shares) -> int:
    """Filters of the largest W tile."""
    most = max(shares.values(lambda one: one.items))
    return most if plan.schedule == "IS" else min(plan.tile_m, most)


def group_bytes(plan: ConvPlan, problem: ConvProblem, shares: Shares) -> int:
    """Bytes from the weights of one group to those of the next."""
    if not is_tiled(plan, problem):
        return problem.filters // problem.groups * _filter_bytes(problem)
    last = _runs(plan, problem, shares)[-1]
    return last.offset + _padded(last.count, plan, shares) * _filter_bytes(problem)


def weight_runs(plan: ConvPlan, problem: ConvProblem, shares: Shares) -> list[int]:
    """By core: the byte at which its filters (or groups) begin."""
    firsts = shares.values(lambda one: one.first_item)
    if not is_tiled(plan, problem):
        item = problem.filters // problem.groups if plan.mode == "grouped" else 1
        return [first * item * _filter_bytes(problem) for first in firsts]
    offsets = {run.first: run.offset for run in _runs(plan, problem, shares)}
    return [offsets.get(first, 0) for first in firsts]


def arranged(
    weight: NDArray[Any],
    plan: ConvPlan,
    problem: ConvProblem,
    machine: NmpMachine,
    twin: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """The weights [filters, channels of a group, rows, columns] in the plan's layout, flat; those
    of a ``twin`` filter by filter behind them."""
    if not is_tiled(plan, problem):
        if twin is None:
            return weight.reshape(-1)
        return _side_by_side(weight, twin).reshape(-1)
    filters = problem.filters // problem.groups
    shares = core_shares(plan, problem.rows, problem.columns, filters, machine)
    groups = problem.groups
    by_group = weight.reshape(groups, filters, problem.channels // groups, -1)
    result = np.zeros(
        (groups, group_bytes(plan, problem, shares) // problem.element_bytes), weight.dtype
    )
    tile_m = tile_filters(plan, shares)
    taps = problem.taps
    for run in _runs(plan, problem, shares):
        at = run.offset // problem.element_bytes
        for m in range(run.first, run.first + run.count, tile_m):
            own = min(tile_m, run.first + run.count - m)
            for n in range(0, by_group.shape[2], plan.tile_n):
                filter_, channel = slice(m, m + own), slice(n, n + plan.tile_n)
                tile = by_group[:, filter_, channel]
                depth = tile.shape[2]
                if twin is not None:
                    tile = _side_by_side(tile[0], twin[filter_, channel])
                size = own * depth * taps
                result[:, at : at + size] = tile.reshape(groups, size)
                at += tile_m * depth * taps
    return result.reshape(-1)


def _side_by_side(weight: NDArray[Any], twin: NDArray[Any]) -> NDArray[Any]:
    """[filters, all of a filter, those of its twin behind the others]."""
    return np.concatenate([one.reshape(len(one), -1) for one in (weight, twin)], axis=1)


def in_rounds(
    weight: NDArray[Any], problem: BlockProblem, plan: BlockPlan, machine: NmpMachine
) -> NDArray[Any]:
    """The weights [filters, channels, 1, 1] of the pointwise convolution of a block, flat: member
    of the crew, round, own filter (as many as the first member has, zeros where there are fewer),
    channels in the order in which they are passed on."""
    filters, channels = weight.shape[:2]
    size = crew_size(plan, machine)
    head, own = problem.head, problem.head.filters // size
    made = [
        channel
        for begin in range(0, head.filters, own)
        for channel in made_channels(head, begin, own, plan.head.tile_m)
    ]
    weight = weight[:, made]
    runs = size // plan.head.filter_slices
    rounds = channels // size // plan.passed
    by_member = weight.reshape(filters, size, rounds, plan.passed)
    by_round = by_member.transpose(0, 2, 1, 3).reshape(filters, rounds, size * plan.passed)
    shares = [point_share(filters, plan, machine, *divmod(one, runs)) for one in range(size)]
    result = np.zeros((size, rounds, shares[0][1], size * plan.passed), weight.dtype)
    for own, (first, count) in zip(result, shares, strict=True):
        own[:, :count] = by_round[first : first + count].transpose(1, 0, 2)
    return result.reshape(-1)


def biases_of_pairs(biases: NDArray[Any], twins: NDArray[Any], members: int) -> NDArray[Any]:
    """Of all ``members`` of a crew: those of a member's filters, and behind them its twins'."""
    by_member = [one.reshape(members, -1) for one in (biases, twins)]
    return np.concatenate(by_member, axis=1).reshape(-1)


def bias_words(conv: FixedConv) -> NDArray[Any]:
    """What the bias buffer gets, [filters]: the biases, or filter words."""
    if conv.filter_shifts is None:
        return conv.bias
    shifts = conv.filter_shifts.astype(np.int64) << FILTER_BIAS_BITS
    words = shifts | (conv.bias.astype(np.int64) & ((1 << FILTER_BIAS_BITS) - 1))
    return words.astype(np.uint32).view(np.int32)


def scale_words(rescaling: Rescaling) -> NDArray[np.int32]:
    """Multipliers and shifts as nmp_rescale takes them."""
    words = (rescaling.multipliers << SCALE_SHIFT_BITS) | rescaling.shifts
    return words.astype(np.uint32).view(np.int32)


def _filter_bytes(problem: ConvProblem) -> int:
    return problem.channels // problem.groups * problem.taps * problem.element_bytes


def _padded(count: int, plan: ConvPlan, shares: Shares) -> int:
    return aligned(count, tile_filters(plan, shares))


def _runs(plan: ConvPlan, problem: ConvProblem, shares: Shares) -> list[_Run]:
    """The distinct runs of filters of all cores, one behind the other."""
    found = {
        one.first_item: one.items for one in shares.cores if one is not None and one.items > 0
    }
    runs, offset = [], 0
    for first, count in sorted(found.items()):
        runs.append(_Run(first, count, offset))
        offset += _padded(count, plan, shares) * _filter_bytes(problem)
    return runs
