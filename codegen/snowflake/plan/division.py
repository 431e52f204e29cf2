"""The parts of a convolution that the clusters of a device share: rows of results (the same weights
come to all) or filters (the same maps come to all)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm_npu.codegen.plan.problem import ConvProblem, share
from tvm_npu.codegen.snowflake.plan.tiling import Divides
from tvm_npu.codegen.snowflake.plan.transfers import UNIT_WORDS
from tvm_npu.codegen.snowflake.steps.windows import Axis
from tvm_npu.sim.snowflake.isa import LANES

Range = tuple[int, int]


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
    the first cluster computes everything, the one part; "both": two parts of the rows, and of each
    parts of the filters."""
    points = is_pointwise(problem)
    rows = problem.rows * problem.columns if points else problem.rows
    inputs = problem.in_rows * problem.in_columns if points else problem.in_rows
    whole = Part(problem, (0, rows), (0, inputs), (0, problem.filters))
    if divides == "none":
        return (whole,)
    if divides == "both":
        if problem.groups > 1:
            return ()
        half = clusters // 2
        halves = _by_rows(whole, clusters // half)
        found = tuple(part for rows in halves for part in _by_filters(rows, half))
        return found if len(found) == clusters else ()
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
    """Whole groups, or as many filters as fill a unit of the memory, since a store takes whole
    units for every pixel; of a single pixel lines."""
    problem, total = whole.problem, whole.problem.filters
    depthwise = 1 < problem.groups == problem.channels == total
    single = problem.rows == problem.columns == 1
    unit = LANES if single else UNIT_WORDS
    if problem.groups > 1 and not depthwise:
        unit = total // problem.groups
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
