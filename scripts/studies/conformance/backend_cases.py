"""The backend cases that the onnx package carries: single operators, small graphs, PyTorch's."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper

from studies.conformance.rows import REFUSED, Row, first_line
from studies.conformance.running import run_case

GROUPS = ("node", "simple", "pytorch-converted", "pytorch-operator")


@lru_cache(maxsize=1)
def backend_cases() -> dict[str, tuple[str, Path]]:
    """Name -> group, folder; those with a folder of their own."""
    from onnx.backend.test.loader import load_model_tests

    found = {}
    for group in GROUPS:
        for case in load_model_tests(kind=group):
            if case.model_dir is not None:
                found[case.name] = (group, Path(case.model_dir))
    return found


def run_backend_case(name: str) -> Row:
    """One case with its first data set as calibration and as input."""
    group, folder = backend_cases()[name]
    try:
        model = onnx.load(str(folder / "model.onnx"))
        weights = {tensor.name for tensor in model.graph.initializer}
        named = [value for value in model.graph.input if value.name not in weights]
        inputs = {
            value.name: _tensor(folder / f"test_data_set_0/input_{number}.pb", value)
            for number, value in enumerate(named)
        }
        wanted = [
            _tensor(folder / f"test_data_set_0/output_{number}.pb", value)
            for number, value in enumerate(model.graph.output)
        ]
    except Exception as error:  # sequences, optionals: no tensors
        return Row(name, group, REFUSED, REFUSED, reason=first_line(error))
    return run_case(name, group, model, inputs, wanted)


def _tensor(path: Path, value: Any) -> Any:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise TypeError(f"{value.name} is a {kind}, not a tensor")
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))
