"""Random layers on Snowflake machines: what is drawn, what is counted, what the command says."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from studies.harness.command import main
from studies.harness.errors import StudyError
from studies.snowflake_layers.layers import KINDS, random_layer
from studies.snowflake_layers.measuring import LayerRow, MutantRow, drawn, layer_row, mutant_row
from studies.snowflake_layers.study import MACHINES, STUDY, Result
from tests.codegen.snowflake.snowflake_cases import machine
from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.compile import CompileOptions, fixed_graph, generate
from tvm_npu.codegen.passes.calibrate import calibrate

LAYER = LayerRow(0, "conv", {"x": (1, 2, 3)}, MACHINES[0], "exact", ("conv",), 9, 100.0, 0, 0)
MUTANT = MutantRow(0, "conv", MACHINES[0], 5, 3, 1, 0, ("instruction 3: sync",))


def test_every_type_of_layer_is_drawn() -> None:
    """Those that fusing makes, too."""
    rng = np.random.default_rng(0)
    on = machine("snowflake-1cc")
    made = set()
    for kind in KINDS:
        for _ in range(6):
            graph = random_layer(kind, rng)
            data = {t: rng.standard_normal((1, *graph.shapes[t])) for t in graph.inputs}
            ranges = calibrate(graph, [{t: a.astype(np.float32) for t, a in data.items()}])
            fixed = fixed_graph(graph, ranges, on, CompileOptions())
            planned = generate(fixed, on, "snowflake").planned
            made.update(type(one.layer) for one in planned.layers)
    missing = backend_of(on).layer_types - made
    assert not missing, f"scripts/studies/snowflake_layers/layers.py draws no {missing}"


def test_layers_depend_on_seed_and_number_alone() -> None:
    for number in range(20):
        (kind, first, _), (again, second, _) = drawn(number, 3), drawn(number, 3)
        assert kind == again and first.shapes == second.shapes
        for one, other in zip(first.layers, second.layers, strict=True):
            assert str(vars(one)) == str(vars(other))
    kinds = Counter(drawn(number, seed)[0] for number in range(60) for seed in (0, 1))
    assert len(kinds) > 12 and kinds["conv"] > kinds["table"]


def test_rows_and_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "rows.json"
    arguments = ["--layers", "6", "--mutated", "2", "--machines", "snowflake-2cc"]
    assert main(STUDY, [*arguments, "--json", str(target)]) == 0, capsys.readouterr().err
    rows: list[dict[str, Any]] = json.loads(target.read_text())
    assert [row["table"] for row in rows] == ["layers"] * 6 + ["mutants"] * 2
    assert {row["machine"] for row in rows} == {"snowflake-2cc"}
    assert {row["planner"] for row in rows[:6]} == {"snowflake", "exact"}
    assert all(row["bits_off"] == row["hazards"] == 0 < row["cycles"] for row in rows[:6])
    for row in rows[6:]:
        fates = row["caught"] + row["trapped"] + row["wrong"] + len(row["survivors"])
        assert row["mutants"] == fates >= row["caught"] > 0
    assert "Programs that wait for less" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("layer", "mutant", "message"),
    [
        ({"bits_off": 3}, {}, "1 of 1 layers have bits off, 0 races; 0 mutants"),
        ({"hazards": 2}, {}, "0 of 1 layers have bits off, 1 races"),
        ({}, {"wrong": 4}, "4 mutants with wrong values were not noticed"),
    ],
)
def test_what_is_wrong(layer: dict[str, int], mutant: dict[str, int], message: str) -> None:
    STUDY.check(Result((LAYER,), (MUTANT,)))
    wrong = Result((replace(LAYER, **layer),), (replace(MUTANT, **mutant),))  # type: ignore[arg-type]
    with pytest.raises(StudyError, match=message):
        STUDY.check(wrong)


def test_values_that_differ_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    from studies.snowflake_layers import measuring

    on = machine("snowflake-1cc")
    right = measuring.run_fixed
    assert layer_row(1, 0, on, "snowflake").bits_off == 0
    monkeypatch.setattr(
        measuring, "run_fixed", lambda *given: {t: a + 1 for t, a in right(*given).items()}
    )
    assert layer_row(1, 0, on, "snowflake").bits_off > 0
    assert mutant_row(1, 0, on, "snowflake").wrong == 0
