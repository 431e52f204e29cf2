"""Operators: one file each for all that is no machine's. `codegen.ops.operator` says what a file
answers, `codegen.ops.registry` lists them by layer type."""

from tvm_npu.codegen.ops.cascade import FixedCascade
from tvm_npu.codegen.ops.channel_slice import ChannelSlice, FixedChannelSlice
from tvm_npu.codegen.ops.concat import Concat, FixedConcat
from tvm_npu.codegen.ops.conv2d import Conv2d, FixedConv
from tvm_npu.codegen.ops.dense import Dense
from tvm_npu.codegen.ops.elementwise import Elementwise, FixedElementwise
from tvm_npu.codegen.ops.operator import Operator
from tvm_npu.codegen.ops.pad import FixedPad, Pad
from tvm_npu.codegen.ops.pool import FixedPool, Pool
from tvm_npu.codegen.ops.registry import OPERATORS, operator_of
from tvm_npu.codegen.ops.reshape import FixedReshape, Reshape
from tvm_npu.codegen.ops.scale_shift import ScaleShift

__all__ = [
    "OPERATORS", "ChannelSlice", "Concat", "Conv2d", "Dense", "Elementwise", "FixedCascade",
    "FixedChannelSlice", "FixedConcat", "FixedConv", "FixedElementwise", "FixedPad", "FixedPool",
    "FixedReshape", "Operator", "Pad", "Pool", "Reshape", "ScaleShift", "operator_of",
]  # fmt: skip
