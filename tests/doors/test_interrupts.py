"""Ctrl-C where TVM has called back is a KeyboardInterrupt to whoever called TVM, and no other call
is the worse for it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tvm_npu.door.find import door_name
from tvm_npu.door.models import BuiltModel, build_onnx
from tvm_npu.models.data import load_digits, load_digits_calibration, load_digits_lenet
from tvm_npu.runtime.session import Session


def build() -> BuiltModel:
    return build_onnx(load_digits_lenet(), "npu/nmp-4x8", load_digits_calibration())


@pytest.fixture(scope="module")
def model() -> BuiltModel:
    return build()


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    return lambda of, name: monkeypatch.setattr(of, name, interrupted)


def scores(model: BuiltModel) -> np.ndarray:
    images, _ = load_digits()
    return model.run({model.inputs[0].name: images[:1]})[0]


def test_while_a_region_runs(
    model: BuiltModel, interrupt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = scores(model)
    interrupt(Session, "run")
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt) as caught:
            scores(model)
        assert not isinstance(caught.value, Exception)
    monkeypatch.undo()
    assert (scores(model) == expected).all()


def test_while_a_region_is_compiled(
    model: BuiltModel, interrupt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(import_module(f"tvm_npu.{door_name()}.codegen"), "packed_caller")
    with pytest.raises(KeyboardInterrupt) as caught:
        build()
    assert not isinstance(caught.value, Exception)
    monkeypatch.undo()
    assert (scores(build()) == scores(model)).all()
