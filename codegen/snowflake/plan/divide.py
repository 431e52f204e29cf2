"""How the clusters of a device share a convolution of one image: by rows of results (the same
weights come to all) or by filters (the same maps come to all), and what they cost together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, Prediction, share
from tvm_npu.codegen.snowflake.plan.predict import predict
from tvm_npu.codegen.snowflake.plan.tiling import Divides, SnowflakePlan, conv_shape, geometry
from tvm_npu.codegen.snowflake.steps.windows import Axis
from tvm_npu.sim.snowflake.isa import LANES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

Range = tuple[int, int]
PlanOne = Callable[[ConvProblem, SnowflakeMachine], SnowflakePlan | Infeasible]
"""Plans a layer for a machine of one cluster."""


@dataclass(frozen=True)
class Part:
    """What one cluster computes: ``problem`` is the layer as it sees it; ``rows`` of the results
    and ``inputs`` of the rows of its maps (pixels where `is_pointwise`), ``filters`` of all: each
    (begin, count)."""

    problem: ConvProblem
    rows: Range
    inputs: Range
    filters: Range


def is_pointwise(problem: ConvProblem) -> bool:
    """Windows are single pixels, one after the other: rows do not matter."""
    single = problem.kernel == (1, 1) == problem.stride
    return single and not any(problem.padding)


def parts_of(problem: ConvProblem, divides: Divides, clusters: int) -> tuple[Part, ...]:
    """A part a cluster; nothing where there is too little for every cluster. ``divides`` "none":
    the first cluster computes everything, the one part."""
    points = is_pointwise(problem)
    rows = problem.rows * problem.columns if points else problem.rows
    inputs = problem.in_rows * problem.in_columns if points else problem.in_rows
    whole = Part(problem, (0, rows), (0, inputs), (0, problem.filters))
    if divides == "none":
        return (whole,)
    make = _by_rows if divides == "rows" else _by_filters
    return tuple(make(whole, clusters))


def _by_rows(whole: Part, clusters: int) -> Iterator[Part]:
    problem, total = whole.problem, whole.rows[1]
    if total < clusters:
        return
    top, left, _, right = problem.padding
    axis = Axis(
        problem.in_rows, problem.rows, problem.kernel[0], problem.stride[0], problem.dilation[0],
        top,
    )  # fmt: skip
    for cluster in range(clusters):
        begin, count = share(total, clusters, cluster)
        if is_pointwise(problem):
            mine = replace(problem, rows=count, columns=1, in_rows=count, in_columns=1)
            yield Part(mine, (begin, count), (begin, count), whole.filters)
            continue
        inputs = axis.inputs(begin, count)
        end = axis.first(begin) + axis.span(count)
        padding = (max(0, -axis.first(begin)), left, max(0, end - problem.in_rows), right)
        mine = replace(problem, rows=count, in_rows=inputs[1], padding=padding)
        yield Part(mine, (begin, count), inputs, whole.filters)


def _by_filters(whole: Part, clusters: int) -> Iterator[Part]:
    """Lines of filters, or whole groups."""
    problem, total = whole.problem, whole.problem.filters
    depthwise = 1 < problem.groups == problem.channels == total
    unit = LANES if depthwise or problem.groups == 1 else total // problem.groups
    units = -(-total // unit)
    if units < clusters or (depthwise and total % unit == 1):
        return
    for cluster in range(clusters):
        first, each = share(units, clusters, cluster)
        begin, count = first * unit, min(each * unit, total - first * unit)
        mine = replace(problem, filters=count)
        if problem.groups > 1:
            groups = count if depthwise else each
            channels = problem.channels // problem.groups * groups
            mine = replace(mine, groups=groups, channels=channels)
        yield Part(mine, whole.rows, whole.inputs, (begin, count))


def one_cluster(machine: SnowflakeMachine, share_of_memory: float = 1.0) -> SnowflakeMachine:
    """A machine like one cluster of ``machine``, with its part of the memory's bandwidth."""
    if machine.clusters.count == 1:
        return machine
    rate = machine.dram.bandwidth_gb_per_s * min(1.0, share_of_memory)
    return machine.model_copy(
        update={
            "clusters": machine.clusters.model_copy(update={"count": 1}),
            "dram": machine.dram.model_copy(update={"bandwidth_gb_per_s": rate}),
        }
    )


def _share_of_memory(problem: ConvProblem, divides: Divides, clusters: int) -> float:
    """What a cluster can take of the memory's time, when each tensor is moved once: loads that it
    shares with the others are read once for all."""
    maps = problem.channels * problem.in_rows * problem.in_columns
    weights = problem.macs // (problem.rows * problem.columns)
    results = problem.filters * problem.rows * problem.columns
    results *= 2 if problem.has_residual else 1
    if divides == "rows":
        own = weights + (maps + results) / clusters
    else:
        own = maps / (clusters if problem.groups > 1 else 1) + (weights + results) / clusters
    return own / (maps + weights + results)


def apart_share(problem: ConvProblem, clusters: int) -> float:
    """The same where each cluster has an image of its own."""
    weights = problem.macs // (problem.rows * problem.columns)
    maps = problem.channels * problem.in_rows * problem.in_columns
    maps += problem.filters * problem.rows * problem.columns * (2 if problem.has_residual else 1)
    return (maps + weights) / (clusters * maps + weights)


def divided_plan(
    problem: ConvProblem, machine: SnowflakeMachine, plan_one: PlanOne
) -> SnowflakePlan | Infeasible:
    """What ``plan_one`` plans for one cluster's part, of the division that is expected to be the
    faster one; "none" where the layer cannot be divided."""
    clusters = machine.clusters.count
    if clusters == 1:
        return plan_one(problem, machine)
    found: list[SnowflakePlan] = []
    ways: tuple[Divides, ...] = ("rows", "filters")
    for divides in ways:
        plan = _plan_of(problem, machine, plan_one, divides)
        if isinstance(plan, SnowflakePlan):
            found.append(plan)
    if found:
        return min(found, key=lambda one: one.prediction.cycles if one.prediction else 0.0)
    return _plan_of(problem, machine, plan_one, "none")


def _plan_of(
    problem: ConvProblem, machine: SnowflakeMachine, plan_one: PlanOne, divides: Divides
) -> SnowflakePlan | Infeasible:
    parts = parts_of(problem, divides, machine.clusters.count)
    answer: SnowflakePlan | Infeasible = Infeasible(
        "clusters", 0, 0, f"fewer {divides} than clusters", "use a machine of fewer clusters"
    )
    view = _view(problem, divides, machine)
    for asked in dict.fromkeys(part.problem for part in parts):
        plan = plan_one(asked, view)
        if not isinstance(plan, SnowflakePlan):
            answer = plan
            continue
        plan = replace(plan, divides=divides)
        if fits(problem, plan, machine):
            return replace(plan, prediction=divided_prediction(problem, plan, machine))
    return answer


def _view(problem: ConvProblem, divides: Divides, machine: SnowflakeMachine) -> SnowflakeMachine:
    if divides == "none":
        return one_cluster(machine)
    return one_cluster(machine, _share_of_memory(problem, divides, machine.clusters.count))


def fits(problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine) -> bool:
    """Tiles of every cluster fit its buffers."""
    parts = parts_of(problem, plan.divides, machine.clusters.count)
    return bool(parts) and all(
        geometry(conv_shape(part.problem), plan, machine).rooms is not None for part in parts
    )


def divided_prediction(
    problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine
) -> Prediction:
    """Of all clusters: the time of the slowest, the bytes of all."""
    if machine.clusters.count == 1:
        return predict(problem, plan, machine)
    parts = parts_of(problem, plan.divides, machine.clusters.count)
    view = _view(problem, plan.divides, machine)
    each = [predict(part.problem, plan, view) for part in parts]
    shares_maps = plan.divides == "filters" and problem.groups == 1
    in_bytes = each[0].in_bytes if shares_maps else sum(one.in_bytes for one in each)
    shares_weights = plan.divides == "rows"
    weight_bytes = each[0].weight_bytes if shares_weights else sum(one.weight_bytes for one in each)
    out_bytes = sum(one.out_bytes for one in each)
    rate = machine.memory_bytes_per_cycle
    load, store = (in_bytes + weight_bytes) / rate, out_bytes / rate
    vector = max(one.mac_cycles for one in each)
    return Prediction(
        max(load + store, *(one.cycles for one in each)), vector, load, store, in_bytes,
        weight_bytes, out_bytes, bound="mac" if vector > load + store else "dram",
    )  # fmt: skip
