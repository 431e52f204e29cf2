"""Operators: one file each for all that is no machine's. `codegen.ops.operator` says what a file
answers, `codegen.ops.registry` lists them by layer type."""

from tvm_npu.codegen.ops.block import FixedBlock
from tvm_npu.codegen.ops.broadcast import Broadcast, Difference, FixedBroadcast, FixedDifference
from tvm_npu.codegen.ops.cascade import FixedCascade
from tvm_npu.codegen.ops.channel_slice import ChannelSlice, FixedChannelSlice
from tvm_npu.codegen.ops.concat import Concat, FixedConcat
from tvm_npu.codegen.ops.conv2d import Conv2d, FixedConv
from tvm_npu.codegen.ops.conv_maxima import FixedConvMaxima
from tvm_npu.codegen.ops.conv_pixels import FixedConvPixels
from tvm_npu.codegen.ops.conv_sum import FixedConvSum
from tvm_npu.codegen.ops.dense import Dense
from tvm_npu.codegen.ops.elementwise import Elementwise, FixedElementwise
from tvm_npu.codegen.ops.gru import FixedGru, Gru
from tvm_npu.codegen.ops.join import Join
from tvm_npu.codegen.ops.lstm import FixedLstm, Lstm
from tvm_npu.codegen.ops.max_feature_map import FixedMaxFeatureMap, MaxFeatureMap
from tvm_npu.codegen.ops.maximum import FixedMaximum, Maximum
from tvm_npu.codegen.ops.move import FixedMove, Piece
from tvm_npu.codegen.ops.operator import Operator
from tvm_npu.codegen.ops.pad import FixedPad, Pad
from tvm_npu.codegen.ops.pool import FixedPool, Pool
from tvm_npu.codegen.ops.reflect_pad import FixedReflectPad, ReflectPad
from tvm_npu.codegen.ops.registry import OPERATORS, operator_of
from tvm_npu.codegen.ops.reshape import FixedReshape, Reshape
from tvm_npu.codegen.ops.resize import ResizeNearest
from tvm_npu.codegen.ops.run import FixedRun
from tvm_npu.codegen.ops.scale_shift import ScaleShift
from tvm_npu.codegen.ops.softmax import FixedSoftmax, Softmax
from tvm_npu.codegen.ops.strided_slice import StridedSlice
from tvm_npu.codegen.ops.table import FixedTable, TableFunction
from tvm_npu.codegen.ops.transpose import Transpose
from tvm_npu.codegen.ops.transposed_conv import FixedTransposedConv, TransposedConv

__all__ = [
    "OPERATORS", "Broadcast", "ChannelSlice", "Concat", "Conv2d", "Dense", "Difference",
    "Elementwise", "FixedBlock", "FixedBroadcast", "FixedCascade", "FixedChannelSlice",
    "FixedConcat", "FixedConv", "FixedConvMaxima", "FixedConvPixels", "FixedConvSum",
    "FixedDifference", "FixedElementwise", "FixedGru", "FixedLstm", "FixedMaxFeatureMap",
    "FixedMaximum", "FixedMove",
    "FixedPad", "FixedPool", "FixedReflectPad", "FixedReshape", "FixedRun", "FixedSoftmax",
    "FixedTable", "FixedTransposedConv", "Gru", "Join", "Lstm",
    "MaxFeatureMap", "Maximum", "Operator", "Pad", "Piece", "Pool", "ReflectPad", "Reshape",
    "ResizeNearest", "ScaleShift", "Softmax", "StridedSlice", "TableFunction", "Transpose",
    "TransposedConv", "operator_of",
]  # fmt: skip
