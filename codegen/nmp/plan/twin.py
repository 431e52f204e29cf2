"""A pointwise convolution beside another that reads the same IFM: its *twin*.

Both multiply the same IN tiles. For the twin, a tile begins where the middle tap of the other's
first window lies, ``padding`` rows and columns further in, and so ends as much behind the tile in
MB0: nothing there is read, but it must be in MB0, and nothing may arrive there meanwhile. A filter
of the pair is one of each: its weights are those of the convolution for all channels of a tile, and
behind them those of the twin; of the OFM under a tile, the convolution's channels come first.
"""

from __future__ import annotations

from tvm_npu.codegen.nmp.plan.kept_rows import guard_elements
from tvm_npu.codegen.plan.problem import ConvProblem


def twin_elements(problem: ConvProblem, middle_columns: int) -> int:
    """From the begin of an IN tile under ``middle_columns`` of the OFM to that of the twin's."""
    if not problem.has_twin:
        return 0
    return problem.padding[0] * problem.in_tile_columns(middle_columns) + problem.padding[1]


def lies_inside(problem: ConvProblem) -> bool:
    """The twin's windows lie inside of the convolution's."""
    return all(
        0 <= problem.padding[axis] <= (problem.kernel[axis] - 1) * problem.dilation[axis]
        for axis in (0, 1)
    )


def all_guard_elements(
    problem: ConvProblem, keeps_rows: bool, middle_rows: int, middle_columns: int
) -> int:
    """Behind an IN tile under ``middle_rows`` x ``middle_columns`` of the OFM: for rows that are
    kept, and for a twin."""
    kept = keeps_rows * guard_elements(problem, middle_rows, middle_columns)
    return kept + twin_elements(problem, middle_columns)


def made_channels(problem: ConvProblem, begin: int, own: int, tile: int) -> list[int]:
    """Channels of the OFM in the order in which a TLT with ``own`` filters from ``begin`` on makes
    them, in tiles of ``tile`` filters; the twin's are counted behind the others."""
    found: list[int] = []
    for first in range(begin, begin + own, tile):
        count = min(tile, begin + own - first)
        for plane in range(problem.planes):
            at = plane * problem.filters + first
            found += range(at, at + count)
    return found
