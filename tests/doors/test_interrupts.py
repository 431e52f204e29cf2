"""Ctrl-C where TVM has called back is a KeyboardInterrupt to whoever called TVM, and no other call
is the worse for it."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tests.patience import PATIENCE_S
from tvm_npu.door.find import door_name
from tvm_npu.door.models import BuiltModel, build_onnx
from tvm_npu.models.data import load_digits, load_digits_calibration, load_digits_lenet
from tvm_npu.runtime.session import Session
from tvm_npu.sim.interrupted import taken_back


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


@pytest.mark.skipif(door_name() != "relay", reason="the callback is TVM 0.19's")
def test_at_random_moments_of_calls_back() -> None:
    """The lines of TVM's own callback, from which nothing is handed on, included."""
    import tvm

    tvm.register_func("tvm_npu.test.called", lambda *_: 7, override=True)
    called = tvm.get_global_func("tvm_npu.test.called")
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        for _ in range(200):
            with pytest.raises(KeyboardInterrupt) as caught, taken_back():
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 4e-4))
                while called(1, 2, 3) == 7:
                    pass
            assert not isinstance(caught.value, Exception)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        tvm._ffi.registry.remove_global_func("tvm_npu.test.called")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_in_a_finalizer_which_swallows_exceptions() -> None:
    class Ended:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), taken_back():
        Ended()
        time.sleep(PATIENCE_S)


def test_a_handler_of_the_process_s_own_stays() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        with taken_back():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]
