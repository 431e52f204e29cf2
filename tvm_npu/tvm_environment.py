"""What TVM 0.19 needs around it on today's systems."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import sys
import types
from importlib.util import find_spec

from tvm_npu.door.find import door_name
from tvm_npu.errors import DoorError
from tvm_npu.runtime.lean_tvm import import_tvm


def prepare() -> None:
    """Imports TVM, ready for Relay; calling it again changes nothing. Raises DoorError for one
    that has no Relay.

    Without ``TOPHUB_LOCATION`` every build would try to download tuning logs.
    """
    _check_for_relay()
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")
    restore_onnx_mapping()
    import_tvm()
    logging.getLogger("autotvm").addFilter(_is_no_advice)


def _check_for_relay() -> None:
    remedy = "in the checkout, pip install '.[relay]' in an environment of its own"
    if find_spec("tvm") is None:
        raise DoorError(f"tvm_npu.relay needs TVM 0.19: {remedy}")
    if door_name() != "relay":
        raise DoorError(
            "tvm_npu.relay needs TVM 0.19, the last with Relay; the door of the installed TVM is "
            f"tvm_npu.{door_name()}, and MIGRATING.md says what differs. For Relay: {remedy}"
        )


def _is_no_advice(record: logging.LogRecord) -> bool:
    """TVM advises once to tune operators of the CPU, to whoever builds anything; with an NPU there
    is nothing that its reader could do."""
    return "have not been tuned" not in record.getMessage()


def restore_onnx_mapping() -> None:
    """Puts `onnx.mapping` back, which onnx 1.19 removed and Relay's ONNX frontend imports."""
    if "onnx.mapping" in sys.modules or not _mapping_is_gone():
        return
    import onnx

    mapping = types.ModuleType("onnx.mapping", "Element types of ONNX as NumPy types.")
    mapping.TENSOR_TYPE_TO_NP_TYPE = {  # type: ignore[attr-defined]
        kind: onnx.helper.tensor_dtype_to_np_dtype(kind)
        for kind in onnx.helper.get_all_tensor_dtypes()
    }
    sys.modules["onnx.mapping"] = mapping
    onnx.mapping = mapping  # type: ignore[attr-defined]


def _mapping_is_gone() -> bool:
    try:
        version = importlib.metadata.version("onnx")
    except importlib.metadata.PackageNotFoundError:
        return False
    major, minor = (int(part) for part in version.split(".")[:2])
    return (major, minor) >= (1, 19)
