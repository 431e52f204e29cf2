"""Pointwise convolutions with a stride that bring only the rows that they look at.

Of a map [C, H, W] with H = s * h, a 1x1 kernel with stride s looks at every s-th row. The same
bytes are a map [C, h, s * W], of which a kernel with stride (1, s) looks at the first columns of
every row: tiles of that leave out the rows between. Whether that takes less time depends on how
long a row is, as what is contiguous in DRAM gets shorter.
"""

from __future__ import annotations

from dataclasses import replace

from tvm_npu.codegen.graph import Shape, chw
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.plan.problem import ConvProblem


def may_read_rows_apart(layer: FixedConv, source: Shape) -> bool:
    _, rows, _ = chw(source)
    return (
        layer.weight.shape[2:] == (1, 1)
        and layer.stride[0] > 1
        and not layer.is_dense
        and not any(layer.padding)
        and rows % layer.stride[0] == 0
    )


def with_rows_apart(problem: ConvProblem) -> ConvProblem:
    """The question about a layer for which `may_read_rows_apart` holds, so read."""
    step = problem.stride[0]
    return replace(
        problem, in_rows=problem.in_rows // step, in_columns=problem.in_columns * step,
        stride=(1, problem.stride[1]),
    )  # fmt: skip
