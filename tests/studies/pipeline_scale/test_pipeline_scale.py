"""The study of scale: its bound, its rows, its options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from studies.harness.command import main
from studies.pipeline_scale import guided_noise
from studies.pipeline_scale.cases import least_bottleneck_s, random_chain, random_platform
from studies.pipeline_scale.rows import fleet_rows, scale_rows
from studies.pipeline_scale.study import STUDY
from tvm_npu.pipelines.search import exact_configuration
from tvm_npu.pipelines.times import simulated_table


@pytest.mark.parametrize("seed", range(4))
def test_no_plan_beats_the_bound_and_many_small_layers_come_close(seed: int) -> None:
    platform = random_platform(6, 3, seed)
    for layers, least in ((8, 0.3), (200, 0.85)):
        table = simulated_table(random_chain(layers, seed), platform)
        share = least_bottleneck_s(table, platform) / exact_configuration(table, platform)[1]
        assert least < share <= 1.0


def test_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guided_noise, "MOST_PLACES", 3)
    monkeypatch.setattr(guided_noise, "MOST_LAYERS", 12)
    path = tmp_path / "rows.json"
    assert main(STUDY, ["--places", "4", "--layers", "8", "--runs", "1", "--json", str(path)]) == 0
    rows = json.loads(path.read_text())
    scale = [row for row in rows if "reference" in row]
    assert [(row["search"], row["kinds"]) for row in scale] == [
        (search, kinds) for kinds in (2, 4) for search in ("exact", "guided", "shisha-h1")
    ]
    for row in scale:
        assert row["share"] <= 1.0 and row["stages"] <= 4 and row["cpu_s"] > 0
        assert row["search"] == "shisha-h1" or row["share"] > 0.999
    assert sum("seed" in row and "reference" not in row for row in rows) == 1
    assert sum("policy" in row for row in rows) == 4


def test_guided_does_not_try_every_sample_of_many_places() -> None:
    """Samples that are planned exactly would take all twelve trials and find nothing."""
    _, guided, _ = scale_rows(16, 4, 300, 0)
    assert guided.share is not None and guided.share > 0.9999
    assert guided.trials is not None and guided.trials <= 6


def test_fleets_deliver_what_paper_says() -> None:
    turns, shares, free, pipeline = fleet_rows(4, 1)
    assert shares.simulated == pytest.approx(shares.paper, rel=0.05)
    assert free.simulated == pytest.approx(free.paper, rel=0.05) and free.paper == shares.paper
    assert turns.simulated < 0.9 * free.simulated
    assert pipeline.paper <= free.paper


def test_options_out_of_range(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(STUDY, ["--places", "257"])
    assert "'257' is not a number from 2 to 256" in capsys.readouterr().err
