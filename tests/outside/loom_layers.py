"""Random layers for a machine with memories of some ten KiB."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tvm_npu.codegen.plan.problem import ConvProblem


def layers(seed: int, count: int) -> Iterator[ConvProblem]:
    """Convolutions of all sorts: groups, strides, dilation, uneven padding, residuals, both
    precisions."""
    draw = np.random.default_rng(seed)

    def between(low: int, high: int) -> int:
        return int(draw.integers(low, high + 1))

    for _ in range(count):
        groups = between(1, 4) if draw.random() < 0.4 else 1
        kernel, stride = (between(1, 4), between(1, 4)), (between(1, 3), between(1, 3))
        dilation = (1, 1) if kernel == (1, 1) else (between(1, 2), between(1, 2))
        top, left, bottom, right = (between(0, 2) for _ in range(4))
        spans = [(kernel[i] - 1) * dilation[i] + 1 for i in range(2)]
        sizes = [between(spans[i], spans[i] + 20) for i in range(2)]
        rows = (sizes[0] + top + bottom - spans[0]) // stride[0] + 1
        columns = (sizes[1] + left + right - spans[1]) // stride[1] + 1
        yield ConvProblem(
            filters=groups * between(1, 24), channels=groups * between(1, 24), groups=groups,
            rows=rows, columns=columns, in_rows=sizes[0], in_columns=sizes[1],
            kernel=kernel, stride=stride, dilation=dilation, padding=(top, left, bottom, right),
            element_bytes=between(1, 2), has_residual=draw.random() < 0.3,
        )  # fmt: skip
