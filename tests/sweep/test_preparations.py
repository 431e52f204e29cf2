"""Machines whose memories decide what they run of a model, in one sweep and in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm", reason="the relay extra is not installed")

import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.runtime.networks import machine
from tests.sweep.threads import Threads
from tvm_npu import models
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sweep import SweepError, SweepSpec, preparations, run_sweep
from tvm_npu.sweep.models import ModelSource
from tvm_npu.sweep.preparations import PreparedModel, prepared
from tvm_npu.sweep.spec import spec_from_dict

pytestmark = pytest.mark.relay
LENET = models.build("lenet").SerializeToString()
LEAST, ALL, MORE = 1 << 16, 1 << 20, 1 << 28
"""Bytes of DRAM: the largest layer takes 802,600."""


def asked(values: list[int], model: str = "lenet") -> SweepSpec:
    """Of nmp-4x8 with so many bytes of DRAM."""
    keys = {"dram.capacity_bytes": values}
    return spec_from_dict({
        "models": [model], "fidelity": ["predicted"], "precisions": ["int16"],
        "machine": {"base": "nmp-4x8", "keys": keys}, "search": {"objectives": ["cycles"]},
    })  # fmt: skip


def own(found: MachineDescription, folder: Path) -> PreparedModel:
    return prepared(ModelSource("lenet", LENET, found, "int16"), folder)


def test_a_folder_serves_machines_that_take_other_operators(tmp_path: Path) -> None:
    """The rows of a sweep are the same in a folder that a sweep of a smaller machine filled."""
    alone = run_sweep(asked([ALL, MORE]), tmp_path / "alone", Threads()).rows
    run_sweep(asked([LEAST]), tmp_path / "shared", Threads())
    assert run_sweep(asked([ALL, MORE]), tmp_path / "shared", Threads()).rows == alone
    assert [row["fault"] for row in alone] == [None, None]
    small_one = run_sweep(asked([LEAST]), tmp_path / "shared", Threads()).rows[0]
    assert small_one["macs"] < alone[0]["macs"]


@pytest.mark.parametrize("values", [[ALL, LEAST], [LEAST, ALL]])
def test_machines_that_take_other_operators_than_the_first_say_so(
    values: list[int], tmp_path: Path
) -> None:
    first, other = run_sweep(asked(values), tmp_path, Threads()).rows
    assert first["fault"] is None and first["on_front"]
    assert "OtherRegionsError: machine" in other["fault"] and not other["on_front"]
    assert "would run other operators of model 'lenet'" in other["fault"]
    assert "(they differ in room for: DRAM 401300)" in other["fault"]
    assert other["cycles"] is None


def test_random_machines_find_what_is_made_for_them(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    kept: dict[Path, Any] = {}
    for number in range(5):
        sizes = {f"mb{index}_bytes": int(2 ** random.integers(6, 10)) for index in (0, 1, 2)}
        one = machine(memories=sizes, dram={"capacity_bytes": int(2 ** random.integers(14, 24))})
        alone = tmp_path / str(number)
        alone.mkdir()
        found, made = own(one, tmp_path), own(one, alone)
        assert found.regions == made.regions and found.asked == made.asked
        if found.file is not None and made.file is not None:
            kept[found.file] = found.file.read_bytes()
            assert found.file.name == made.file.name
    assert 1 < len(kept) < 5


def test_machines_that_run_nothing(tmp_path: Path) -> None:
    """The first one ends the sweep; others are rows."""
    weight = numpy_helper.from_array(np.ones((300, 300), np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 300]) for name in "xy")
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"])], "wide", [x], [y], [weight]
    )
    path = tmp_path / "wide.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    first, other = run_sweep(asked([ALL, LEAST], str(path)), tmp_path, Threads()).rows
    assert first["fault"] is None and "room for: DRAM 90600" in other["fault"]
    with pytest.raises(SweepError, match="no operator runs on 'nmp-4x8'"):
        run_sweep(asked([LEAST, ALL], str(path)), tmp_path, Threads())


def test_questions_are_bounded_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_sweep(asked([LEAST]), tmp_path, Threads())
    (path,) = tmp_path.rglob("*.asked")
    path.write_text('["", [' + "[]," * preparations.MOST_VALUES)
    monkeypatch.setattr(preparations, "_FILE", None)
    with pytest.raises(SweepError, match="[0-9]+ values.*; at most 262144.*remove the folder's"):
        run_sweep(asked([ALL]), tmp_path, Threads())
