"""The backend cases that the onnx package carries: single operators, small graphs, PyTorch's."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from studies.conformance.rows import REFUSED, Row, first_line
from studies.conformance.running import run_case

GROUPS = ("node", "simple", "pytorch-converted", "pytorch-operator")


@lru_cache(maxsize=1)
def backend_cases() -> dict[str, tuple[str, Any]]:
    """Name -> group, onnx's TestCase: those with a folder of their own, and those that a newer onnx
    makes in memory."""
    from onnx.backend.test.loader import load_model_tests

    found = {}
    for group in GROUPS:
        for case in load_model_tests(kind=group):
            if case.model_dir is not None or case.model is not None:
                found[case.name] = (group, case)
    return found


def run_backend_case(name: str) -> Row:
    """One case with its first data set as calibration and as input."""
    group, case = backend_cases()[name]
    try:
        model, inputs, wanted = _made(case) if case.model_dir is None else _read(case)
    except Exception as error:  # sequences, optionals: no tensors
        return Row(name, group, REFUSED, REFUSED, reason=first_line(error))
    return run_case(name, group, model, inputs, wanted)


def _named(model: onnx.ModelProto) -> list[Any]:
    """The inputs that are no weights."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def _read(case: Any) -> tuple[onnx.ModelProto, dict[str, Any], list[Any]]:
    """Model, inputs and outputs of a case in a folder."""
    folder = Path(case.model_dir)
    model = onnx.load(str(folder / "model.onnx"))
    inputs = {
        value.name: _tensor(folder / f"test_data_set_0/input_{number}.pb", value)
        for number, value in enumerate(_named(model))
    }
    wanted = [
        _tensor(folder / f"test_data_set_0/output_{number}.pb", value)
        for number, value in enumerate(model.graph.output)
    ]
    return model, inputs, wanted


def _made(case: Any) -> tuple[onnx.ModelProto, dict[str, Any], list[Any]]:
    """The same of a case in memory."""
    given, wanted = case.data_sets[0]
    for values in (*given, *wanted):
        if not isinstance(values, np.ndarray):
            raise TypeError(f"a {type(values).__name__}, not a tensor")
    names = [value.name for value in _named(case.model)]
    return case.model, dict(zip(names, given, strict=True)), list(wanted)


def _tensor(path: Path, value: Any) -> Any:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise TypeError(f"{value.name} is a {kind}, not a tensor")
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))
