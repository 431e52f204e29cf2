"""What is no option, module or model is refused by name, through the installed door."""

from __future__ import annotations

from typing import Any

import pytest

from tvm_npu.errors import PartitionError, TargetError
from tvm_npu.options import make_options

pytest.importorskip("tvm", reason="neither the relay nor the relax extra is installed")

from tvm_npu.door.find import door  # noqa: E402
from tvm_npu.door.models import import_onnx  # noqa: E402
from tvm_npu.door.offload import offload_regions  # noqa: E402
from tvm_npu.door.onnx.model import read_model  # noqa: E402


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"percentile": "x"}, "percentile 'x': must be a number"),
        ({"percentile": True}, "percentile True: must be a number"),
        ({"percentile": float("nan")}, "percentile nan: must be above 0 and at most 100"),
        ({"precision": "auto", "max_loss": "x"}, "max_loss 'x': must be a number"),
        ({"precision": "auto", "max_loss": 1}, "max_loss 1: must be above 0 and below 1"),
        ({"max_loss": "x"}, "max_loss 'x' with precision None: it is for 'auto'"),
        ({"precision": "int8", "int16_layers": [3]}, "int16_layers has 3: must be names of layers"),
        ({"int16_layers": "conv1"}, "int16_layers 'conv1': must be a list of names of layers"),
        ({"int16_layers": 3}, "int16_layers 3: must be a list of names of layers"),
        ({"tuning_log": 3}, "tuning_log is a int; expected a text or a Path"),
        ({"tuning_log": "\0"}, "tuning_log is '.x00'; no path has NUL characters"),
        ({"precision": []}, "precision a list of 0 items: must be one of int16, int8"),
        ({"planner": []}, "planner a list of 0 items: must be one of "),
        ({"offload": {}}, "offload a dict of 0 items: must be one of paying, all"),
        ({"images": 3}, "images 3: must be one of together, apart"),
        ({"quantization": ["plain"]}, "quantization a list of 1 items: must be one of plain, "),
        ({"seed": "x"}, "seed 'x': must be an integer of at least 0"),
        ({"cpu_target": 3}, "cpu_target 3: must be a text"),
    ],
)
def test_what_is_no_option(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError, match=f"^{message}"):
        make_options("nmp-4x8-int8", **options)


@pytest.mark.parametrize("module", [None, 3, "x", {}])
def test_what_is_no_module(module: Any) -> None:
    name = type(module).__name__
    text = f"^a module to partition is a {name}; expected a tvm.IRModule$"
    with pytest.raises(PartitionError, match=text):
        offload_regions(door(), module, {}, make_options(), None)


@pytest.mark.parametrize("model", [None, 3, b"x", []])
def test_what_is_no_model(model: Any) -> None:
    text = f"^an ONNX model is a {type(model).__name__}; expected an onnx.ModelProto or a path$"
    with pytest.raises(PartitionError, match=text):
        read_model(model)
    with pytest.raises(PartitionError, match=text):
        import_onnx(model, {})
