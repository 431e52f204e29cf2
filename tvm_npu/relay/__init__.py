"""The Relay door: marks a model's NPU regions and compiles them when TVM builds the module."""

from __future__ import annotations

from tvm_npu.tvm_environment import prepare

prepare()  # imports TVM, before the modules below do

from tvm_npu.door.models import build_onnx
from tvm_npu.door.public import PublicFunctions
from tvm_npu.door.rule_table import rule_table
from tvm_npu.relay.codegen import region_of
from tvm_npu.relay.door import DOOR
from tvm_npu.relay.frontend import from_onnx, from_tflite
from tvm_npu.relay.onnx.clip import warn_of_dropped_bounds
from tvm_npu.targets import register_tags

__all__ = [
    "build_onnx",
    "explain",
    "from_onnx",
    "from_tflite",
    "import_region",
    "partition_for_npu",
    "partition_report",
    "region_fixed_graphs",
    "region_functions",
    "region_programs",
    "rule_table",
]


def __dir__() -> list[str]:
    return __all__


register_tags()
warn_of_dropped_bounds()

_public = PublicFunctions(DOOR, region_of)
explain = _public.explain
import_region = _public.import_region
partition_for_npu = _public.partition_for_npu
partition_report = _public.partition_report
region_fixed_graphs = _public.region_fixed_graphs
region_functions = _public.region_functions
region_programs = _public.region_programs
