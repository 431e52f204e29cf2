"""Small ONNX models, and the command line as a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tvm_npu.cli import main

DATA = Path(__file__).parents[2] / "tvm_npu" / "models" / "data"

Run = Callable[..., tuple[int, str, str]]
"""(exit code, stdout, stderr) of a command line."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    # pytest-xdist gives its workers the width of a terminal.
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="session")
def lenet() -> Path:
    return DATA / "digits_lenet.onnx"


@pytest.fixture(scope="session")
def digits_npz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tvm_npu.models.data import load_digits_calibration

    path = tmp_path_factory.mktemp("calibration") / "digits.npz"
    np.savez(path, image=load_digits_calibration()[:4])
    return path


@pytest.fixture(scope="session")
def lenet_program(lenet: Path, digits_npz: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    command = ["compile", lenet, "-o", folder, "--calibration", digits_npz]
    assert main([str(part) for part in command]) == 0
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="session")
def make_onnx(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``make_onnx(ops, shape)``: a chain of operators named after themselves, from input ``x``.
    Convolutions are 3x3, from 3 or 4 channels to 4."""
    from onnx import TensorProto, helper, numpy_helper, save

    def make(operators: Sequence[str], shape: Sequence[int | str] = (1, 3, 8, 8)) -> Path:
        nodes, weights, tensor, channels = [], [], "x", 3
        generator = np.random.default_rng(7)
        for number, operator in enumerate(operators):
            inputs, attributes = [tensor], {}
            if operator == "Conv":
                values = generator.standard_normal((4, channels, 3, 3)).astype(np.float32)
                weights.append(numpy_helper.from_array(values, f"w{number}"))
                inputs.append(f"w{number}")
                channels = 4
            elif operator == "Softmax":
                attributes["axis"] = 1
            elif operator == "LRN":
                attributes["size"] = 3
            tensor = f"t{number}"
            name = f"{operator.lower()}{number}"
            nodes.append(helper.make_node(operator, inputs, [tensor], name=name, **attributes))
        graph = helper.make_graph(
            nodes,
            "chain",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(tensor, TensorProto.FLOAT, None)],
            initializer=weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
        model.ir_version = 8
        path = tmp_path_factory.mktemp("models") / "chain.onnx"
        save(model, path)
        return path

    return make
