"""What all doors to TVM share: rules, importer, partitioning, calibration. No TVM in here.

`door()` is the door of the installed TVM; programs that hold no TVM IR begin with `import_onnx` or
`build_onnx`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm_npu.door.find import door
    from tvm_npu.door.models import (
        BuiltModel,
        ImportedModel,
        PartitionedModel,
        build_onnx,
        import_onnx,
        import_tflite,
    )
    from tvm_npu.door.protocol import Door

__all__ = [
    "BuiltModel",
    "Door",
    "ImportedModel",
    "PartitionedModel",
    "build_onnx",
    "door",
    "import_onnx",
    "import_tflite",
]

_MODULE_OF = {**dict.fromkeys(__all__, "models"), "Door": "protocol", "door": "find"}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
