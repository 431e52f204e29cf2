"""Sweeps of models with images: how right they are, by the integers that they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm", reason="the relay extra is not installed")

from tests.sweep.threads import Threads
from tvm_npu import accuracy, models
from tvm_npu.accuracy import measuring
from tvm_npu.accuracy.images import LabelledImages, Preparation
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.graph.digests import graph_digest
from tvm_npu.codegen.shared_graphs import SharedGraphs
from tvm_npu.models.data import load_digits, load_digits_lenet
from tvm_npu.options import make_options
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sweep import SweepError, SweepSpec, accuracies, run_sweep
from tvm_npu.sweep.models import ModelSource
from tvm_npu.sweep.spec import spec_from_dict

pytestmark = pytest.mark.relay
IMAGES = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the model, and labelled images for it."""
    folder = tmp_path_factory.mktemp("digits")
    (folder / "digits.onnx").write_bytes(load_digits_lenet().SerializeToString())
    images, labels = load_digits()
    labels = np.array(labels[:IMAGES])
    labels[:4] = (labels[:4] + 1) % 10  # somebody's mistakes
    np.savez(folder / "digits.npz", images=images[:IMAGES], labels=labels)
    return folder


def spec(folder: Path, **changes: Any) -> SweepSpec:
    name = str(folder / "digits.onnx")
    values = {
        "models": [name],
        "machine": {"base": "nmp-4x8", "keys": {"cores.tles": [1, 2]}},
        "planners": ["naive"],
        "precisions": ["int16", "int8"],
        "accuracy": {name: {"images": str(folder / "digits.npz"), "calibration": 4}},
        "search": {"objectives": ["cycles", "top1"]},
    }
    return spec_from_dict({**values, **changes})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


def test_accuracy_is_that_of_the_command_and_measured_once_a_precision(
    folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []
    digested: list[str] = []

    def counted_digest(graph: FixedGraph) -> str:
        digested.append(graph.precision)
        return graph_digest(graph)

    def counted(model: Any, *arguments: Any, **options: Any) -> Any:
        measured.append(model.machine.name)
        return measure(model, *arguments, **options)

    measure = measuring.measure
    monkeypatch.setattr(measuring, "measure", counted)
    monkeypatch.setattr(accuracies, "graph_digest", counted_digest)
    result = run_sweep(spec(folder), store, Threads())
    assert len(measured) == 2 and len(result.rows) == 4
    assert sorted(digested) == ["int16"] * 2 + ["int8"] * 2  # sought and measured, not a machine
    again = run_sweep(spec(folder), store, Threads())
    assert again.rows == result.rows and again.evaluated == 0 and len(measured) == 2
    monkeypatch.undo()
    for precision in ("int16", "int8"):
        machine = load_machine("nmp-4x8")
        source = ModelSource("digits", (folder / "digits.onnx").read_bytes(), machine, precision)
        imported = source.partitioned()[0]
        samples = LabelledImages(folder / "digits.npz", imported.inputs, Preparation())
        options = make_options(machine, precision=precision)
        model = imported.partition(options, [one.sample for one in samples][:4])
        wanted = accuracy.measure(model, samples, layer_samples=0)
        assert wanted.top1_npu < IMAGES == wanted.labelled
        for row in result.rows:
            if row["precision"] == precision:
                assert row["top1"] == wanted.top1_npu / IMAGES
                assert row["top5"] == wanted.top5_npu / IMAGES
                assert row["agreement"] == wanted.agreement / IMAGES
                assert row["sqnr_db"] == wanted.sqnr_db
    ratios = {row["precision"]: row["sqnr_db"] for row in result.rows}
    assert ratios["int16"] > ratios["int8"] + 5


def test_the_most_accurate_is_on_the_front(folder: Path, store: Path) -> None:
    asked = {"objectives": ["cycles", "sqnr_db"]}
    front = run_sweep(spec(folder, search=asked), store, Threads()).front()
    assert {(row["keys"]["cores.tles"], row["precision"]) for row in front} == {
        (2, "int16"), (2, "int8")
    }  # fmt: skip
    least = max(row["sqnr_db"] for row in front)
    asked["require"] = [f"sqnr_db >= {least}", "batch * cycles > 0"]  # type: ignore[assignment]
    result = run_sweep(spec(folder, search=asked), store, Threads())
    assert [row["precision"] for row in result.front()] == ["int16"]
    assert {row["precision"] for row in result.rows if row["meets"]} == {"int16"}
    asked["require"] = ["cycles < 0"]  # type: ignore[assignment]
    assert not run_sweep(spec(folder, search=asked), store, Threads()).front()
    asked["require"] = ["colour == 3"]  # type: ignore[assignment]
    with pytest.raises(SweepError, match="search.require: 'colour == 3' has no value"):
        run_sweep(spec(folder, search=asked), store, Threads())


def test_models_without_images_have_none_and_formulas_may_name_it(
    folder: Path, store: Path
) -> None:
    name = str(folder / "digits.onnx")
    formula = {"formula": "100 * (1 - top1)", "source": "arithmetic"}
    result = run_sweep(
        spec(folder, precisions=["int16"], outcome={"wrong_percent": formula},
             search={"objectives": ["wrong_percent"]}),
        store, Threads(),
    )  # fmt: skip
    for row in result.rows:
        assert row["wrong_percent"] == pytest.approx(100 * (1 - row["top1"])) and row["top1"] < 1
    with pytest.raises(SweepError, match="objective 'top1': model 'lenet' has no images"):
        spec(folder, models=[name, "lenet"])
    with pytest.raises(SweepError, match="accuracy 'lenet': no model of the sweep"):
        spec(folder, accuracy={"lenet": {"images": "x.npz"}})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"images": "none.npz"}, "there is no folder or file"),
        ({"labels": "none.csv"}, "none.csv"),
        ({"mean": [1.0, 2.0]}, "--mean has 2 numbers; images have 1"),
        ({"preset": "imagenet"}, "preset 'imagenet' has 3 numbers of mean.* images have 1 c"),
    ],
)
def test_images_that_do_not_fit_are_told(
    folder: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    entry = {"images": str(folder / "digits.npz"), **changes}
    asked = spec(folder, accuracy={str(folder / "digits.onnx"): entry})
    with pytest.raises(SweepError, match=said):
        run_sweep(asked, tmp_path, Threads())


def test_images_without_labels(folder: Path, store: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "bare.npz", images=np.load(folder / "digits.npz")["images"][:4])
    entry = {"images": str(tmp_path / "bare.npz"), "simulated": 1}
    given = {"accuracy": {str(folder / "digits.onnx"): entry}, "precisions": ["int8"]}
    with pytest.raises(SweepError, match="objective 'top1': the images of model .* no labels"):
        run_sweep(spec(folder, **given), tmp_path, Threads())
    asked = {"objectives": ["agreement"]}
    rows = run_sweep(spec(folder, search=asked, **given), tmp_path, Threads()).rows
    assert [row["top1"] for row in rows] == [None, None]
    assert all(row["agreement"] == 1.0 for row in rows)


def test_a_model_prepared_for_another_machine_is_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose regions could be others: here the digests are."""
    digests = iter(range(99))
    monkeypatch.setattr(accuracies, "graph_digest", lambda _: str(next(digests)))
    with pytest.raises(SweepError, match="was prepared for another machine; give another folder"):
        run_sweep(spec(folder, precisions=["int8"]), tmp_path, Threads())


def test_digests_know_every_number(folder: Path) -> None:
    machine = load_machine("nmp-4x8")
    source = ModelSource("lenet", models.build("lenet").SerializeToString(), machine, "int8")
    model = source.partitioned()[1]
    (symbol,) = model.symbols
    region = model.region(symbol)
    graphs = SharedGraphs(region.graph(), region.ranges)
    one, other = graphs.fixed(machine, "int8"), model.fixed_graph(symbol)
    assert one is not other and graph_digest(one) == graph_digest(other)
    assert graph_digest(one) != graph_digest(graphs.fixed(machine, "int16"))
    layer = next(layer for layer in other.layers if hasattr(layer, "weight"))
    layer.weight[(0,) * layer.weight.ndim] += 1
    assert graph_digest(one) != graph_digest(other)
    with pytest.raises(TypeError, match="a graph holds a set"):
        graph_digest({1})  # type: ignore[arg-type]
