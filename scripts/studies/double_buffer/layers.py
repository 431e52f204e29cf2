"""The layers, as questions to a planner."""

from __future__ import annotations

from studies.double_buffer.published import LAYERS
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.models import build
from tvm_npu.models.layers import layer_shapes

MODEL = "flownet_s"


def flownet_layers() -> list[tuple[str, ConvProblem]]:
    """(name, problem at 8 bits) of every convolution, under the paper's names."""
    found = [shape for _, shape in layer_shapes(build(MODEL))]
    problems = []
    for name, shape in zip(LAYERS, found, strict=True):
        _, channels, in_rows, in_columns = shape.input
        filters, _, *kernel = shape.weights
        top, left, bottom, right = shape.pads
        problems.append(
            (
                name,
                ConvProblem(
                    filters=filters,
                    channels=channels,
                    groups=shape.groups,
                    rows=shape.output[2],
                    columns=shape.output[3],
                    in_rows=in_rows,
                    in_columns=in_columns,
                    kernel=(kernel[0], kernel[1]),
                    stride=(shape.strides[0], shape.strides[1]),
                    dilation=(shape.dilations[0], shape.dilations[1]),
                    padding=(top, left, bottom, right),
                    element_bytes=1,
                ),
            )
        )
    return problems
