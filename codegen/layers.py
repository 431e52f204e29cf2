"""Fixed-point layers as planners and the layer table see them, whatever the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tvm_npu.codegen.graph import Shape, chw
from tvm_npu.codegen.ops import FixedCascade, FixedConv
from tvm_npu.codegen.passes.cascades import window_of
from tvm_npu.codegen.plan.problem import ConvProblem


def conv_problem(
    layer: FixedConv, in_shape: Shape, out_shape: Shape, element_bytes: int
) -> ConvProblem:
    """A 1x1 convolution of a 1x1 map is a fully connected layer, whatever its stride."""
    channels, in_rows, in_columns = chw(in_shape)
    filters, rows, columns = chw(out_shape)
    kernel = (layer.weight.shape[2], layer.weight.shape[3])
    if layer.is_dense:
        channels, in_rows, in_columns = channels * in_rows * in_columns, 1, 1
        filters, rows, columns = filters * rows * columns, 1, 1
    is_point = (in_rows, in_columns, *kernel, *layer.padding) == (1, 1, 1, 1, 0, 0, 0, 0)
    return ConvProblem(
        filters=filters,
        channels=channels,
        groups=layer.groups,
        rows=rows,
        columns=columns,
        in_rows=in_rows,
        in_columns=in_columns,
        kernel=kernel,
        stride=(1, 1) if is_point else layer.stride,
        dilation=(1, 1) if kernel == (1, 1) else layer.dilation,
        padding=layer.padding,
        element_bytes=element_bytes,
        has_residual=len(layer.inputs) > 1,
        is_dense=layer.is_dense or (is_point and layer.groups == 1),
        out_bytes=layer.out_bytes,
    )


def cascade_problem(
    cascade: FixedCascade, shapes: Mapping[str, Shape], element_bytes: int
) -> ConvProblem:
    """Its convolution, with the window behind it."""
    conv = cascade.conv
    problem = conv_problem(conv, shapes[conv.inputs[0]], shapes[conv.output], element_bytes)
    window = window_of(cascade.window, shapes)
    return replace(problem, window=window, out_bytes=cascade.out_bytes)

