"""When a convolution has made the results that the tiles of a maximum load, and how much of their
loads its sums hide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.snowflake.plan.division import Part, is_pointwise, parts_of
from tvm_npu.codegen.snowflake.plan.pools import PoolShape, PoolTiles, pool_parts
from tvm_npu.codegen.snowflake.plan.tiling import ConvShape, SnowflakePlan, conv_shape
from tvm_npu.codegen.snowflake.steps.windows import cut
from tvm_npu.sim.lazy import cached_property

Range = tuple[int, int]


@dataclass(frozen=True)
class Maker:
    """A convolution with its plan on ``clusters`` clusters. Where neighbouring results are computed
    side by side, filters of a block (`plan.side_by_side`), ``problem`` is that of blocks."""

    problem: ConvProblem
    plan: SnowflakePlan
    clusters: int

    def is_divided_like(self, tiles: PoolTiles) -> bool:
        """A cluster that computes these tiles loads what it has stored itself, but for the border
        of its rows."""
        parts = {"none": tiles.plane_clusters, "rows": 1, "both": self.clusters // 2}
        return parts.get(self.plan.divides, self.clusters) == tiles.plane_clusters

    def ready(self, shape: PoolShape, tiles: PoolTiles) -> Iterator[float]:
        """For each tile of a maximum of the results the share of a cluster's results behind which
        all that it loads is there."""
        tall = shape.rows.size // self.problem.rows
        wide = shape.columns.size // self.problem.columns
        of_blocks = (tall * wide - 1) * (self.problem.filters // (tall * wide))
        across = [
            _blocks(shape.columns.inputs(*one), wide)
            for one in cut(0, shape.columns.out, tiles.tile_c)
        ]
        for rows, planes in pool_parts(shape, tiles, self.clusters):
            for first, count in cut(0, planes[1], tiles.tile_planes):
                wanted = planes[0] + first, of_blocks + count
                for band in cut(*rows, tiles.tile_r):
                    down = _blocks(shape.rows.inputs(*band), tall)
                    for columns in across:
                        yield max(
                            self._made(part, down, columns, wanted) for part in self._parts
                        )

    @cached_property
    def _parts(self) -> tuple[tuple[Part, ConvShape], ...]:
        parts = parts_of(self.problem, self.plan.divides, self.clusters)
        return tuple((part, conv_shape(part.problem)) for part in parts)

    def _made(
        self, of: tuple[Part, ConvShape], rows: Range, columns: Range, planes: Range
    ) -> float:  # fmt: skip
        """Of those of a cluster when it has these; 0 where it makes none of them."""
        part, shape = of
        wide, height, width = self.problem.columns, self.plan.tile_r, self.plan.tile_c
        column = sum(columns) - 1
        if is_pointwise(self.problem):  # a row of pixels
            first, last = rows[0] * wide + columns[0], (sum(rows) - 1) * wide + column
            rows, column, wide, height = (first, last + 1 - first), 0, 1, width
        row, plane = _last(rows, part.rows), _last(planes, part.filters)
        if row is None or plane is None:
            return 0.0
        group, plane = divmod(plane, shape.filters)
        filters = cut(0, shape.filters, self.plan.tile_m)[plane // self.plan.tile_m]
        band = cut(0, part.rows[1], height)[row // height]
        tile = cut(0, wide, width)[column // width]
        before, pixels = band[0] * wide + band[1] * tile[0], band[1] * tile[1]
        every = part.rows[1] * wide
        if self.plan.stays == "kernels":
            results = filters[0] * every + filters[1] * (before + pixels)
        else:
            results = before * shape.filters + pixels * sum(filters)
        total = every * shape.filters
        return (group * total + results) / (shape.groups * total)


def _blocks(results: Range, size: int) -> Range:
    """Those in which ``results`` lie, ``size`` in each."""
    first = results[0] // size
    return first, (sum(results) - 1) // size + 1 - first


def _last(wanted: Range, mine: Range) -> int | None:
    """The last of ``wanted`` in ``mine``, counted from where that begins."""
    last = min(sum(wanted), sum(mine)) - 1
    return last - mine[0] if last >= max(wanted[0], mine[0]) else None


def hidden_cycles(
    ready: Sequence[float], cycles: float, idle_cycles: float, memory_cycles: float
) -> float:
    """Of ``memory_cycles`` that the loads and stores of as many tiles take those that pass while a
    convolution computes for ``cycles`` and leaves the memory idle for ``idle_cycles``; a tile can
    come behind the share of its results in ``ready``."""
    found = time = 0.0
    for share in sorted(ready):
        time = max(time, share * cycles)
        came = min(memory_cycles / len(ready), (cycles - time) * idle_cycles / cycles)
        if came <= 0:
            break
        time += came * cycles / idle_cycles
        found += came
    return found


def hidden_beside(
    maker: Maker, shape: PoolShape, tiles: PoolTiles, idle_cycles: float, memory_cycles: float
) -> float:
    """`hidden_cycles` of a maximum of the convolution's results."""
    prediction = maker.plan.prediction
    assert prediction is not None, "a plan that is predicted"
    ready = list(maker.ready(shape, tiles))
    return hidden_cycles(ready, prediction.cycles, idle_cycles, memory_cycles)
