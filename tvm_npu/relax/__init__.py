"""The Relax door: marks a model's NPU regions; `run_codegen` compiles them.

For TVM 0.26 and later, whose programs run on Relax's virtual machine.
"""

from __future__ import annotations

from tvm_npu.relax.environment import prepare

prepare()  # imports TVM, before the modules below do

from tvm_npu.door.models import build_onnx
from tvm_npu.door.public import PublicFunctions
from tvm_npu.door.rule_table import rule_table
from tvm_npu.relax.codegen import region_of, run_codegen
from tvm_npu.relax.door import DOOR
from tvm_npu.relax.frontend import from_exported_program, from_onnx
from tvm_npu.targets import register_tags

__all__ = [
    "build_onnx",
    "explain",
    "from_exported_program",
    "from_onnx",
    "import_region",
    "partition_for_npu",
    "partition_report",
    "region_fixed_graphs",
    "region_functions",
    "region_programs",
    "rule_table",
    "run_codegen",
]


def __dir__() -> list[str]:
    return __all__


register_tags()

_public = PublicFunctions(DOOR, region_of)
explain = _public.explain
import_region = _public.import_region
partition_for_npu = _public.partition_for_npu
partition_report = _public.partition_report
region_fixed_graphs = _public.region_fixed_graphs
region_functions = _public.region_functions
region_programs = _public.region_programs
