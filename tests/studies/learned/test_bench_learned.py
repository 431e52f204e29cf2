"""The tuning benchmark on a small layer: rows, tables, drawing, errors. No network is built."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from studies.harness.command import main
from studies.learned import study, subjects
from studies.learned.searches import (
    LayerSearch,
    checkpoints,
    correlations,
    exact_cycles_of,
    search_rows,
    tuned_layer,
)
from studies.learned.subjects import TUNED_LAYERS, NetworkLayers, without_shared
from tests.codegen.nmp.plan import plan_reference as reference
from tvm_npu.codegen.nmp.tune.conv_space import ConvSpace
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tune import anneal as annealing
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine
from tvm_npu.tuning.model import Question

MACHINE = load_nmp_machine("nmp-4x8")
SMALL = reference.conv(24, 16, (9, 9), (3, 3), padding=(1, 1, 1, 1))
LAYERS = (
    SMALL,
    reference.conv(16, 8, (12, 12), (3, 3)),
    reference.conv(32, 24, (7, 7), (1, 1)),
    reference.dense(40, 200),
    reference.conv(8, 8, (10, 10), (3, 3), groups=8),
)
TRIALS = 17
SPACE = ConvSpace(SMALL, MACHINE)


@pytest.fixture(scope="module", autouse=True)
def short_annealing() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(annealing, "WALKS", 16)
        patch.setattr(annealing, "STEPS", 10)
        yield


@pytest.fixture(scope="module")
def search() -> LayerSearch:
    runs = {
        (tuner, seed): tuned_layer(SMALL, MACHINE, tuner, seed, TRIALS)
        for tuner in ("learned", "random", "annealing")
        for seed in range(2)
    }
    return LayerSearch("small", exact_cycles_of("small", SMALL, MACHINE), runs)


def test_search_rows(search: LayerSearch) -> None:
    rows = search_rows(search)
    assert len(rows) == 3 * 2 * TRIALS
    for (tuner, seed), run in search.runs.items():
        own = [row for row in rows if (row.tuner, row.seed) == (tuner, seed)]
        assert [row.trials for row in own] == list(range(1, TRIALS + 1))
        bests = [row.best_cycles for row in own if row.best_cycles is not None]
        assert bests == sorted(bests, reverse=True)
        assert run.best is not None and bests[-1] == run.best[1]
        assert own[-1].best_over_exact == pytest.approx(bests[-1] / search.exact_cycles)
    best = search.best_so_far("random")
    assert best.shape == (2, TRIALS) and (np.diff(best, axis=1) <= 0).all()


def test_trials_until_close(search: LayerSearch) -> None:
    for tuner in ("learned", "random", "annealing"):
        for until, row in zip(search.until_close(tuner), search.best_so_far(tuner), strict=True):
            if until is None:
                assert row[-1] > 1.05
            else:
                assert row[until - 1] <= 1.05 and (until == 1 or row[until - 2] > 1.05)


def test_correlations(search: LayerSearch) -> None:
    rows = correlations(search, SPACE)
    assert {row.trials for row in rows} == set(checkpoints(TRIALS)) == {8, 16}
    assert {row.seed for row in rows} == {0, 1} and "random" in {row.of for row in rows}
    for row in rows:
        assert -1 <= row.spearman <= 1 and row.plans >= 10
    assert np.median([row.spearman for row in rows if row.of == "random"]) > 0.3


def fake_network(model: str, machine: NmpMachine) -> NetworkLayers:
    chosen = {"resnet50": LAYERS, "lenet": LAYERS[:3], "squeezenet1.0": LAYERS[2:]}[model]
    return NetworkLayers(model, tuple(Question(one, f"layer{i}", i + 1)
                                      for i, one in enumerate(chosen)))  # fmt: skip


def test_what_a_network_shares_teaches_nothing() -> None:
    networks = [fake_network(name, MACHINE) for name in ("lenet", "squeezenet1.0")]
    assert without_shared(networks, networks[0]) == [
        ("squeezenet1.0", LAYERS[3]), ("squeezenet1.0", LAYERS[4]),
    ]  # fmt: skip


def small_layers(network: NetworkLayers) -> dict[str, ConvProblem]:
    assert network.model == "resnet50"
    return {"one": LAYERS[1], "two": LAYERS[3]}


def test_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(study, "network_layers", fake_network)
    monkeypatch.setattr(study, "tuned_layers", small_layers)
    monkeypatch.setattr(study, "TUNED_LAYERS", ("one", "two"))
    monkeypatch.setenv("COLUMNS", "200")  # no cell is folded
    path, drawing = tmp_path / "rows.json", tmp_path / "plot.svg"
    arguments = ["--trials", "9", "--seeds", "1", "--listed", "5", "--json", str(path)]
    arguments += ["--plot", str(drawing), "--models", "lenet", "squeezenet1.0"]
    assert main(study.STUDY, arguments) == 0
    out, err = capsys.readouterr()
    assert not err
    rows = json.loads(path.read_text())
    assert all(not isinstance(value, dict | list) for row in rows for value in row.values())
    tables = [row["table"] for row in rows]
    assert tables.count("search") == 2 * 3 * 9 and tables.count("reranking") == 2
    for row in rows:
        if row["table"] == "reranking":
            assert row["fastest_cycles"] <= min(row["exact_cycles"], row["reranked_cycles"])
            assert row["changed"] >= row["worse"] and row["listed"] <= 5
            assert f"{row['exact_cycles']:,.0f}" in out
    assert "Rank correlation" in out and "geometric mean" in out
    assert b"learned" in drawing.read_bytes() or drawing.stat().st_size > 10_000
    again = tmp_path / "again.json"
    assert main(study.STUDY, [*arguments[:6], "--json", str(again), *arguments[-3:]]) == 0
    assert json.loads(again.read_text()) == rows, "deterministic"


def test_layers_of_resnet50_are_told_by_their_shape() -> None:
    shapes = {
        "3x3 64>64 56x56": reference.conv(64, 64, (56, 56), (3, 3), padding=(1, 1, 1, 1)),
        "1x1 1024>256 14x14": reference.conv(256, 1024, (14, 14), (1, 1)),
        "3x3 512>512 7x7": reference.conv(512, 512, (7, 7), (3, 3), padding=(1, 1, 1, 1)),
    }
    assert set(shapes) == set(TUNED_LAYERS)
    network = NetworkLayers(
        "resnet50", tuple(Question(one, "x", 1) for one in (*LAYERS, *shapes.values()))
    )
    assert subjects.tuned_layers(network) == shapes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models", "lenet"], "1 network in --models; at least 2"),
        (["--json", "/no/such/folder/x.json"], "there is no folder"),
        (["--plot", "x.gif"], "its suffix must be one of"),
    ],
)
def test_errors(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(study.STUDY, arguments) == 1
    assert message in capsys.readouterr().err


def test_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["--machine", "none"], "unknown machine 'none'"),
        (["--trials", "0"], "not an integer of at least 1"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(study.STUDY, arguments)
        assert stop.value.code == 2 and message in capsys.readouterr().err


def test_without_xgboost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    assert main(study.STUDY, []) == 1
    assert "bench_learned: error: the learned cost model needs xgboost" in capsys.readouterr().err


def test_rows_are_plain(search: LayerSearch) -> None:
    json.dumps([asdict(row) for row in (*search_rows(search), *correlations(search, SPACE))],
               allow_nan=False)  # fmt: skip
