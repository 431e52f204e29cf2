"""Statistics and tables over rows that are small enough to compute by hand."""

from __future__ import annotations

import pytest
from rich.console import Console

from studies.harness.tables import Sheet, print_sheets
from studies.planning import tables
from studies.planning.figures import (
    BASE,
    accuracy,
    limits_of_speed_up,
    mean_speed_ups,
    speed_ups,
)
from studies.planning.measuring import LayerRow, Row

NMP, DUAL = "nmp-4x8", "nmp-4x8-dual"


def row(model: str, machine: str, planner: str, simulated_us: float) -> Row:
    predicted_us = 1.1 * simulated_us
    return Row(model, machine, planner, simulated_us, predicted_us, 25.0, 0.01, None, 1000, 20.0)


def layer(planner: str, predicted_us: float, simulated_us: float, macs: int = 1) -> LayerRow:
    return LayerRow("a", NMP, planner, "l", "conv", macs, simulated_us, predicted_us, 1.0, 10)


ROWS = (
    row("lenet", *BASE, 100.0),
    row("lenet", NMP, "exact", 50.0),
    row("lenet", DUAL, "exact", 25.0),
    row("resnet50", *BASE, 400.0),
    row("resnet50", NMP, "exact", 50.0),
    row("alone", NMP, "exact", 1.0),
)


def test_speed_ups_are_over_the_base_of_the_same_model() -> None:
    assert speed_ups(ROWS) == {
        ("lenet", (NMP, "exact")): 2.0,
        ("lenet", (DUAL, "exact")): 4.0,
        ("resnet50", (NMP, "exact")): 8.0,
    }
    assert mean_speed_ups(ROWS) == pytest.approx({(NMP, "exact"): 4.0, (DUAL, "exact"): 4.0})
    assert speed_ups(ROWS[1:3]) == {} and mean_speed_ups(ROWS[1:3]) == {}


def test_no_plan_is_faster_than_the_bound_allows() -> None:
    assert limits_of_speed_up(ROWS) == pytest.approx({NMP: (4.0 * 16.0) ** 0.5, DUAL: 4.0})


def test_accuracy() -> None:
    found = accuracy([layer("tso", 1.1, 1.0), layer("tso", 1.8, 2.0), layer("tso", 3.0, 3.0)])
    assert found.layers == 3
    assert found.mean_absolute_error == pytest.approx((0.1 + 0.1) / 3)
    # covariance 1.9 / 2 over deviations sqrt(2 / 2) and sqrt(1.8467 / 2)
    assert found.pearson == pytest.approx(1.9 / (2 * 1.84666666666) ** 0.5)
    assert accuracy([layer("tso", 1.0, 2.0)]).pearson is None
    assert accuracy([layer("tso", 1.0, 2.0)] * 3).pearson is None
    with pytest.raises(ValueError, match="at least one layer"):
        accuracy([])


def text(sheet: Sheet) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        print_sheets(console, [sheet])
    return capture.get()


def test_table_of_rows() -> None:
    shown = text(tables.rows_table(ROWS)).splitlines()
    own = {tuple(line.split()[:3]): line.split()[3:] for line in shown[4:] if line.strip()}
    assert own["LeNet", NMP, "tso"] == ["100", "110", "4.00", "400%", "1.00", "0.0", "10.0"]
    assert own["LeNet", DUAL, "exact"] == ["25", "28", "1.00", "25%", "4.00", "0.0", "10.0"]
    assert own["alone", NMP, "exact"][4] == "-"


def test_table_of_accuracy_parts_planned_layers_from_all() -> None:
    layers = [layer("tso", 1.1, 1.0), layer("tso", 2.0, 1.0, macs=0), layer("exact", 1.0, 1.0)]
    shown = text(tables.accuracy_table(layers))
    lines = [line.split() for line in shown.splitlines()]
    assert [NMP, "tso", "2", "55.0%", "-", "1", "10.0%", "-"] in lines
    assert ["all", "all", "3", "36.7%", "-", "2", "5.0%", "-"] in lines
