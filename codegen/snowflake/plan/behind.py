"""Convolutions with maxima behind them (max feature maps, 2x2 pools) that run as one layer: which
they are, and their plans.

The maxima are made in the MBufs, so that only what they leave is stored, and nobody loads what lies
between. A tile must have all that a maximum compares: rows and columns of CUs are even for a pool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from math import inf
from typing import Protocol, runtime_checkable

from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
from tvm_npu.codegen.graph.tensors import chw
from tvm_npu.codegen.layers import conv_problem
from tvm_npu.codegen.ops import FixedConv, FixedConvMaxima, FixedMaxFeatureMap, FixedPool
from tvm_npu.codegen.plan.layers import LayerPlanner
from tvm_npu.codegen.plan.planner import Goal, Planner, goal
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, Prediction
from tvm_npu.codegen.snowflake.plan.divide import divided_prediction, fits
from tvm_npu.codegen.snowflake.plan.division import parts_of
from tvm_npu.codegen.snowflake.plan.tiling import (
    Geometry,
    SnowflakePlan,
    conv_shape,
    geometry,
    together,
)
from tvm_npu.codegen.snowflake.steps.behind import WINDOW
from tvm_npu.sim.snowflake.isa import LANES, WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

NEAREST = 6
PARTS = (1, 2, 3, 4)
"""Numbers of rows a tile that are tried where the planner's own does not suit, and parts of its
columns."""
ISSUED = 3.75
"""Instructions of a maximum."""
ENDS = 3000
"""Cycles at begin and end of a layer of its own, about."""
STAGE = 60
"""Cycles until what a stage reads has left, and its first maxima have issued."""
_NEVER = (inf, inf)


@dataclass(frozen=True)
class MaximaProblem:
    """``conv`` and what is behind it: the larger halves of its planes, those of 2x2 windows."""

    conv: ConvProblem
    halves: bool
    windows: bool


def maxima_problem(layer: FixedConvMaxima, shapes: Mapping[str, Shape]) -> MaximaProblem:
    conv = layer.conv
    asked = conv_problem(conv, shapes[conv.inputs[0]], shapes[conv.output], WORD_BYTES)
    return MaximaProblem(asked, layer.feature_map is not None, layer.pool is not None)


# --- which layers -------------------------------------------------------------------------------


def with_maxima(
    fixed: FixedGraph, planner: LayerPlanner, machine: SnowflakeMachine
) -> FixedGraph:
    """``fixed`` with layers that run faster as one, or move less, made one."""
    uses = Counter(tensor for layer in fixed.layers for tensor in layer.inputs)
    readers = {tensor: layer for layer in fixed.layers for tensor in layer.inputs}
    gone: set[str] = set()
    made: dict[str, FixedConvMaxima] = {}

    def behind(layer: FixedLayer) -> FixedLayer | None:
        """The one that reads the layer's output, if nobody else does."""
        tensor = layer.outputs[0]
        alone = uses[tensor] == 1 and tensor not in fixed.outputs
        return readers[tensor] if alone else None

    for layer in fixed.layers:
        if not _can_have_maxima(layer):
            continue
        assert isinstance(layer, FixedConv)
        found = list(_candidates(layer, behind, fixed))
        costs = [_cost(one, found[0], fixed, planner, machine) for one in found]
        if min(costs, default=_NEVER) < _NEVER:
            one = found[costs.index(min(costs))]
            made[one.output] = one
            gone.update(part.outputs[0] for part in (one.conv, *one.behind[:-1]))
    layers = [
        made.get(layer.outputs[0], layer)
        for layer in fixed.layers
        if gone.isdisjoint(layer.outputs)
    ]
    return replace(fixed, layers=tuple(layers)) if made else fixed


def _cost(
    one: FixedConvMaxima, longest: FixedConvMaxima, fixed: FixedGraph, planner: LayerPlanner,
    machine: SnowflakeMachine,
) -> tuple[float, float]:  # fmt: skip
    """`_value` of ``one`` and what the longest candidate has behind it."""
    asked, answer = planner.answer(one, fixed.shapes)
    if not isinstance(answer, SnowflakePlan) or answer.prediction is None:
        return _NEVER
    rest = replace(asked, halves=False, windows=longest.pool is not one.pool)
    words = 0.5 * _words(asked) if asked.halves else _words(asked)
    moved, cycles = _apart(rest, words, machine)
    known = answer.prediction
    return _value(known.cycles + cycles, known.moved_bytes + moved, goal(planner.chosen))


def _can_have_maxima(layer: FixedLayer) -> bool:
    """Not with a residual, whose places are those of results."""
    if not isinstance(layer, FixedConv):
        return False
    return layer.groups == 1 and not layer.is_dense and len(layer.inputs) == 1


def _candidates(
    layer: FixedConv, behind: Callable[[FixedLayer], FixedLayer | None], fixed: FixedGraph
) -> Iterator[FixedConvMaxima]:
    """What could run as one, the longest first."""
    following = behind(layer)
    feature_map = following if isinstance(following, FixedMaxFeatureMap) else None
    pool = behind(feature_map) if feature_map is not None else following
    if isinstance(pool, FixedPool) and _is_simple(pool, fixed):
        yield _candidate(layer, feature_map, pool)
    if feature_map is not None:
        yield _candidate(layer, feature_map, None)


def _is_simple(pool: FixedPool, fixed: FixedGraph) -> bool:
    """Windows of 2x2 that do not overlap and leave nothing out."""
    _, rows, columns = chw(fixed.shapes[pool.inputs[0]])
    window = (WINDOW, WINDOW)
    alone = pool.kernel == window == pool.stride and not any(pool.padding)
    return pool.kind == "max" and alone and rows % WINDOW == 0 == columns % WINDOW


def _candidate(
    conv: FixedConv, feature_map: FixedMaxFeatureMap | None, pool: FixedPool | None
) -> FixedConvMaxima:
    parts: list[FixedLayer] = [conv, *(one for one in (feature_map, pool) if one is not None)]
    source = tuple(name for part in parts for name in part.source)
    return FixedConvMaxima(
        "+".join(part.name for part in parts), conv.inputs, parts[-1].outputs, source=source,
        conv=conv, feature_map=feature_map, pool=pool,
    )  # fmt: skip


# --- plans --------------------------------------------------------------------------------------


@runtime_checkable
class SeveralPlans(Protocol):
    """A planner that knows more plans of a convolution than its answer: with maxima behind it
    another one may be faster."""

    def others(
        self, problem: ConvProblem, machine: SnowflakeMachine
    ) -> tuple[SnowflakePlan, ...]: ...


def maxima_plan(
    asked: MaximaProblem, machine: SnowflakeMachine, chosen: Planner
) -> SnowflakePlan | Infeasible:
    """The plan that ``chosen`` has for the convolution, with rows that suit the maxima, or one near
    another of its `SeveralPlans`; the fastest or, where traffic is the planner's goal, the one that
    moves least. Infeasible where layers of their own are predicted to be better."""
    base = chosen.plan(asked.conv, machine)
    if not isinstance(base, SnowflakePlan):
        return base
    assert base.prediction is not None
    value = partial(_value, goal=goal(chosen))
    moved, cycles = _apart(asked, _words(asked), machine)
    apart = value(base.prediction.cycles + cycles, base.prediction.moved_bytes + moved)
    others = chosen.others(asked.conv, machine) if isinstance(chosen, SeveralPlans) else ()
    best, least = None, apart
    for plan in chain.from_iterable(_near(asked, one, machine) for one in (base, *others)):
        conv = base.prediction if plan == base else divided_prediction(asked.conv, plan, machine)
        known = _prediction(asked, plan, conv, machine)
        found = value(known.cycles, known.moved_bytes)
        if found < least:
            best, least = replace(plan, prediction=known), found
    if best is not None:
        return best
    return Infeasible(
        "MBuf", 0, 0, "maxima behind this convolution are not better in its tiles",
        "run them as layers of their own",
    )  # fmt: skip


def _words(asked: MaximaProblem) -> float:
    return asked.conv.filters * asked.conv.rows * asked.conv.columns


def _value(cycles: float, moved_bytes: float, goal: Goal) -> tuple[float, float]:
    """What is to be least, and the other where that is equal."""
    return (moved_bytes, cycles) if goal == "bytes" else (cycles, moved_bytes)


def _apart(
    asked: MaximaProblem, words: float, machine: SnowflakeMachine
) -> tuple[float, float]:
    """Bytes and cycles of layers of their own for ``words`` results: the memory's, and until the
    first words have come and the last have left."""
    moved = 0.0
    if asked.halves:
        moved, words = moved + 1.5 * words, words / 2
    if asked.windows:
        moved += 1.25 * words
    ends = ENDS * (asked.halves + asked.windows)
    size = WORD_BYTES * moved
    return size, size / machine.memory_bytes_per_cycle + ends


def _near(
    asked: MaximaProblem, base: SnowflakePlan, machine: SnowflakeMachine
) -> Iterator[SnowflakePlan]:
    """``base``, or with nearly as many filters, rows and columns as it has."""
    if _suits(asked, base, machine):
        yield base
        return
    rows = max(part.rows[1] for part in parts_of(asked.conv, base.divides, _count(machine)))
    sizes = sorted(range(WINDOW, rows + 1, WINDOW), key=lambda size: abs(size - base.tile_r))
    unit = together(base.mode, machine)
    for filters in dict.fromkeys((base.tile_m, -(-base.tile_m // (2 * unit)) * unit)):
        for parts in PARTS:
            columns = -(-base.tile_c // parts)
            plans = (
                replace(base, tile_m=filters, tile_r=size, tile_c=columns + columns % 2)
                for size in sizes[:NEAREST]
            )
            yield from islice((plan for plan in plans if _suits(asked, plan, machine)), 2)


def _count(machine: SnowflakeMachine) -> int:
    return machine.clusters.count


def _suits(asked: MaximaProblem, plan: SnowflakePlan, machine: SnowflakeMachine) -> bool:
    """No maximum compares what different tiles, CUs or clusters have."""
    parts = parts_of(asked.conv, plan.divides, _count(machine))
    if not parts or not fits(asked.conv, plan, machine):
        return False
    for part in parts:
        if asked.windows and not _is_even(part.rows):
            return False
        found = geometry(conv_shape(part.problem), plan, machine)
        if found.splits_depth:
            return False
        if asked.halves and not all(map(_is_even, (part.filters, *found.filter_tiles))):
            return False
        if asked.windows and (found.shape.rows.out == 1 or not _is_even_everywhere(found)):
            return False
    return True


def _is_even_everywhere(found: Geometry) -> bool:
    return all(
        _is_even(down) and _is_even(across)
        for rows, columns in found.map_tiles
        for down, across in found.parts(rows, columns)
        if down[1] and across[1]
    )


def _is_even(part: tuple[int, int]) -> bool:
    return part[0] % 2 == 0 == part[1] % 2


def _prediction(
    asked: MaximaProblem, plan: SnowflakePlan, conv: Prediction, machine: SnowflakeMachine
) -> Prediction:
    """The vector unit makes maxima between the sums, and less is stored."""
    left = (0.5 if asked.halves else 1.0) * (0.25 if asked.windows else 1.0)
    vector = conv.mac_cycles + _vector_cycles(asked, plan, machine)
    before, after = conv.load_cycles + conv.store_cycles, left * conv.store_cycles
    load = conv.load_cycles
    # Of what is not hidden the stores' part shrinks with them.
    rest = (conv.cycles - max(conv.mac_cycles, before)) * (load + after) / before
    return Prediction(
        max(vector, load + after) + rest, vector, load, after, conv.in_bytes, conv.weight_bytes,
        round(left * conv.out_bytes), bound="mac" if vector > load + after else "dram",
    )  # fmt: skip


def _vector_cycles(
    asked: MaximaProblem, plan: SnowflakePlan, machine: SnowflakeMachine
) -> float:
    """Of the maxima, in the cluster that has most."""
    part = parts_of(asked.conv, plan.divides, _count(machine))[0]
    found = geometry(conv_shape(part.problem), plan, machine)
    total = 0.0
    for rows, columns in found.map_tiles:
        down, across = found.parts(rows, columns)[0]
        for _, filters in found.filter_tiles:
            pixels, planes = down[1] * across[1], filters
            if asked.halves:
                planes = filters // 2
                total += STAGE + pixels * max(ISSUED, -(-planes // LANES))
            if asked.windows:
                total += 2 * STAGE + pixels * planes / 2 / LANES
                total += pixels / 4 * max(ISSUED, -(-planes // LANES))
    return total
