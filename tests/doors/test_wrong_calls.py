"""Arguments of `profile`, `verify` and `compare` that are none: typed errors, before any work."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tvm_npu
from tvm_npu.cli.errors import CliError
from tvm_npu.errors import ComparisonError, NpuError, PartitionError, TargetError, VerificationError
from tvm_npu.models.data import load_digits_lenet
from tvm_npu.sim.limits import LimitError
from tvm_npu.verification import verify_regions

pytest.importorskip("tvm", reason="no TVM is installed")

OTHERS: tuple[Any, ...] = (3, math.nan, 1j, b"x", [], {"a": 1}, object())


@pytest.mark.parametrize("call", [tvm_npu.profile, tvm_npu.verify])
def test_models_machines_shapes_and_limits(call: Any, tmp_path: Any) -> None:
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"\xff" * 40)
    for model in (None, *OTHERS, "", str(tmp_path / "none.onnx"), damaged):
        with pytest.raises(PartitionError, match="ONNX model"):
            call(model)
    model = load_digits_lenet()
    for given in OTHERS:
        with pytest.raises(NpuError):
            call(model, given)
        with pytest.raises(LimitError, match="limits are a"):
            call(model, limits=given)
    for given in (3, "x", [1], {"image": None}, {"image": 3}, {"image": (1, math.nan)}):
        with pytest.raises(PartitionError, match="shape"):
            call(model, shapes=given)
    with pytest.raises(TargetError, match="tile limits"):
        call(model, tile_limits={"max_tile_m": math.nan})


@pytest.mark.parametrize("runs", [0, -1, None, 1.5, math.nan, math.inf, "2", True, [1]])
def test_numbers_of_runs(runs: Any) -> None:
    with pytest.raises(TargetError, match="runs = .*; at least 1, a whole number"):
        tvm_npu.profile(load_digits_lenet(), runs=runs)


@pytest.mark.parametrize(
    ("programs", "text"),
    [
        ({"other": None}, "a program is given for region 'other'; there are main"),
        ({None: None}, "a program is given for region None"),
        ({"main": b"x"}, "the program of region main is b'x'; expected a Program"),
        ([], "programs are a list of 0 items; expected a dict"),
        (3, "programs are 3; expected a dict"),
    ],
)
def test_programs_of_no_region_are_not_passed_over(programs: Any, text: str) -> None:
    """A program under another name was not looked at: what was verified was the one made now."""
    model: Any = SimpleNamespace(symbols=("main",))
    with pytest.raises(VerificationError, match=text):
        next(verify_regions(model, [], programs))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"trials": -1}, "trials = -1; at least 0"),
        ({"trials": math.nan}, "trials = nan; at least 0"),
        ({"threads": 0}, "threads = 0; from 1 to"),
        ({"threads": "two"}, "threads = 'two'; from 1 to"),
        ({"threads": 10**18}, "threads = 1000000000000000000; from 1 to 65,536"),
        ({"repeats": 0}, "repeats = 0; at least 1"),
        ({"repeats": 2.5}, "repeats = 2.5; at least 1"),
        ({"labels": 3}, "labels are 3; a list"),
        ({"labels": "12"}, "labels are '12'; a list"),
        ({"labels": [math.nan]}, "label 0 is nan; the number of a class"),
        ({"labels": [0, -1]}, "label 1 is -1; the number of a class"),
        ({"labels": [0.5]}, "label 0 is 0.5; the number of a class"),
        ({"labels": np.array([[1]])}, "label 0 is array.*; the number of a class"),
        ({"labels": ["3"]}, "label 0 is '3'; the number of a class"),
        ({"runners": "npu"}, "runners are 'npu'; expected a list"),
        ({"runners": []}, "runners are none; at least 1"),
        ({"runners": [[]]}, "one of runners is a list of 0 items; expected a name"),
        ({"machines": None}, "machines are None; expected a list"),
        ({"machines": "nmp-4x8"}, "machines are 'nmp-4x8'; expected a list"),
        ({"precisions": ()}, "precisions are none; at least 1"),
        ({"planners": [None]}, "one of planners is None; expected a name"),
        ({"pythons": 3}, "pythons are 3; expected a list"),
        ({"pythons": [3]}, "an interpreter of pythons is a int; expected a text"),
        ({"tuning_log": 3}, "tuning_log is a int; expected a text"),
    ],
)
def test_comparisons_of_nothing(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ComparisonError, match=text):
        tvm_npu.compare(load_digits_lenet(), **{"runners": ["npu"], **options})


def test_models_of_comparisons() -> None:
    for model in (None, *OTHERS):
        with pytest.raises(PartitionError, match="an ONNX model is a"):
            tvm_npu.compare(model, runners=["npu"])
        with pytest.raises(LimitError, match="limits are a"):
            tvm_npu.compare(load_digits_lenet(), runners=["npu"], limits=model)
    with pytest.raises(CliError, match="cannot read|is not"):
        tvm_npu.compare("none.onnx", runners=["npu"])
    with pytest.raises(PartitionError, match="shape"):
        tvm_npu.compare(load_digits_lenet(), runners=["npu"], shapes=3)  # type: ignore[arg-type]
