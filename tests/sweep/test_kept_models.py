"""Stores of sweeps from other people: what is no model or no outcome is refused; nothing runs."""

from __future__ import annotations

import os
import pickle
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtime.networks import network
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.sim.whole_files import write_whole
from tvm_npu.sweep import SweepError
from tvm_npu.sweep.kept_models import model_from_bytes, model_to_bytes
from tvm_npu.sweep.models import SweptModel, SweptRegion
from tvm_npu.sweep.store import FILE, Store


def kept() -> SweptModel:
    graph, samples = network()
    ranges = calibrate(graph, [{"x": samples, "y": samples[::-1]}])
    inputs = (samples, samples[:, ::-1], np.asfortranarray(samples))
    return SweptModel("m", "0" * 64, (SweptRegion(graph, ranges, inputs),), 5, 0.5)


def test_what_is_kept_comes_back() -> None:
    model = kept()
    found = model_from_bytes(model_to_bytes(model))
    assert (found.name, found.macs, found.npu_mac_share) == ("m", 5, 0.5)
    region, given = found.regions[0], model.regions[0]
    assert region.graph.shapes == given.graph.shapes and region.ranges == given.ranges
    for one, other in zip(region.inputs, given.inputs, strict=True):
        assert np.array_equal(one, other)


class Call:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("function", [os.mkdir, write_whole, eval])
def test_nothing_is_called(function: Any, tmp_path: Path) -> None:
    target = tmp_path / "made"
    arguments: tuple[Any, ...] = (str(target),)
    if function is write_whole:
        arguments = (str(target), b"x")
    elif function is eval:
        arguments = (f"open({str(target)!r}, 'w')",)
    with pytest.raises(SweepError, match="is no part of a model"):
        model_from_bytes(pickle.dumps(Call(function, *arguments)))
    assert not target.exists()


def test_what_modules_of_models_import_is_not_called(tmp_path: Path) -> None:
    target = tmp_path / "made"
    named = b"\x80\x04ctvm_npu.codegen.program.format\nwrite_whole\n"
    with pytest.raises(SweepError, match="format.write_whole is no part of a model"):
        model_from_bytes(named + b"(V" + str(target).encode() + b"\nC\x01xtR.")
    assert not target.exists()


@pytest.mark.parametrize(
    "data", [b"", b"\x80\x05", pickle.dumps({"a": 1}), model_to_bytes(kept())[:-9]]
)
def test_what_is_no_model(data: bytes) -> None:
    with pytest.raises(SweepError, match="a model in the sweep's store"):
        model_from_bytes(data)


def test_no_room_is_made_for_what_is_not_there() -> None:
    """Python's reader would take 4 GB."""
    with pytest.raises(SweepError, match="LONG_BINPUT 268435455"):
        model_from_bytes(b"\x80\x05Nr\xff\xff\xff\x0f.")


@pytest.mark.parametrize("row", ["", "[1]", '{"cycles": "many"}', "[" * 9999])
def test_rows_that_are_no_outcome(row: str, tmp_path: Path) -> None:
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as database:
        database.execute("INSERT INTO results VALUES ('key', ?)", (row,))
    store = Store(tmp_path)
    with pytest.raises(SweepError, match="is no store of sweeps"):
        store.get("key")
    store.close()
