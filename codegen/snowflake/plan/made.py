"""When a convolution has made the results that the tiles of a maximum load, and how much of their
loads its sums hide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.snowflake.plan.division import Part, is_pointwise, parts_of
from tvm_npu.codegen.snowflake.plan.pools import PoolShape, PoolTiles, pool_parts
from tvm_npu.codegen.snowflake.plan.tiling import SnowflakePlan, conv_shape
from tvm_npu.codegen.snowflake.steps.windows import cut

Range = tuple[int, int]


@dataclass(frozen=True)
class Maker:
    """A convolution with its plan on ``clusters`` clusters."""

    problem: ConvProblem
    plan: SnowflakePlan
    clusters: int

    def is_divided_like(self, tiles: PoolTiles) -> bool:
        """A cluster that computes these tiles loads what it has stored itself, but for the border
        of its rows."""
        parts = {"none": tiles.plane_clusters, "rows": 1, "both": self.clusters // 2}
        return parts.get(self.plan.divides, self.clusters) == tiles.plane_clusters

    def ready(self, shape: PoolShape, tiles: PoolTiles) -> Iterator[float]:
        """For each tile of a maximum of the results the share of the convolution's steps behind
        which all that it loads is there."""
        parts = parts_of(self.problem, self.plan.divides, self.clusters)
        for rows, planes in pool_parts(shape, tiles, self.clusters):
            for first, count in cut(0, planes[1], tiles.tile_planes):
                for band in cut(*rows, tiles.tile_r):
                    loaded = shape.rows.inputs(*band), (planes[0] + first, count)
                    yield max(self._made(part, *loaded) for part in parts)

    def _made(self, part: Part, rows: Range, planes: Range) -> float:
        """Of those that a cluster makes; 0 where it makes none."""
        height = self.plan.tile_r
        if is_pointwise(self.problem):
            columns = self.problem.columns
            rows, height = (rows[0] * columns, rows[1] * columns), self.plan.tile_c
        row, plane = _last(rows, part.rows), _last(planes, part.filters)
        if row is None or plane is None:
            return 0.0
        shape = conv_shape(part.problem)
        group, plane = divmod(plane, shape.filters)
        bands, tiles = -(-part.rows[1] // height), -(-shape.filters // self.plan.tile_m)
        band, tile = row // height, plane // self.plan.tile_m
        step = tile * bands + band if self.plan.stays == "kernels" else band * tiles + tile
        return (group * bands * tiles + step + 1) / (shape.groups * bands * tiles)


def _last(wanted: Range, mine: Range) -> int | None:
    """The last of ``wanted`` in ``mine``, counted from where that begins."""
    last = min(sum(wanted), sum(mine)) - 1
    return last - mine[0] if last >= max(wanted[0], mine[0]) else None


def hidden_cycles(
    ready: Sequence[float], cycles: float, idle_cycles: float, memory_cycles: float
) -> float:
    """Of ``memory_cycles`` that the loads and stores of as many tiles take those that pass while a
    convolution computes for ``cycles`` and leaves the memory idle for ``idle_cycles``; a tile can
    come behind the share of its steps in ``ready``."""
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
