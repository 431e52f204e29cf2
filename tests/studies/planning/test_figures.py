"""Statistics and tables over rows that are small enough to compute by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from rich.console import Console

from studies.harness.errors import StudyError
from studies.harness.tables import Sheet, print_sheets
from studies.planning import tables
from studies.planning.errors import ErrorRow
from studies.planning.figures import (
    BASE,
    BYTES_GOALS,
    GOAL_NETWORKS,
    GOALS,
    accuracy,
    limits_of_speed_up,
    mean_speed_ups,
    missed_goals,
    speed_ups,
)
from studies.planning.joining import APART, JoinedRow
from studies.planning.measuring import LayerRow, Measured, Row
from studies.planning.study import STUDY, LayerErrors

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


def measured(gain: float, models: Iterable[str] = sorted(GOAL_NETWORKS)) -> Measured:
    """The base, and what all goals are about, so many times as fast on every network."""
    rows = [row(model, *BASE, 100.0) for model in models]
    rows += [row(model, *pair, 100.0 / gain) for pair in GOALS for model in models]
    return Measured((), tuple(rows), (), ())


def test_what_is_below_its_goal_is_named() -> None:
    STUDY.check(measured(2.2))
    assert GOALS[NMP, "exact"] == 1.55 and GOALS[DUAL, "exact"] == 2.1
    with pytest.raises(StudyError) as told:
        STUDY.check(measured(1.9))
    assert str(told.value) == (
        "below the goal: exact on nmp-4x8-dual is 1.900 times as fast as tso on nmp-4x8, the goal "
        "is 2.1"
    )
    with pytest.raises(StudyError, match="exact on nmp-4x8 is 1.500 .*, exact on nmp-4x8-dual is"):
        STUDY.check(measured(1.5))


def test_bytes_above_their_goal_are_named() -> None:
    most = BYTES_GOALS["mobilenet_v2", DUAL, "exact-traffic"]
    for moved, named in ((most, False), (most + 10_000, True), (2 * most, True)):
        one = replace(row("mobilenet_v2", DUAL, "exact-traffic", 1.0), dram_bytes=moved)
        missed = missed_goals((one, replace(one, machine=NMP), replace(one, planner="tso")))
        assert missed == [
            f"exact-traffic on nmp-4x8-dual moves {moved / 1e6:.2f} MB for MobileNetV2, the goal "
            "is 10.09"
        ] * named


def errors(
    error: float, worst: float, models: Iterable[str] = sorted(GOAL_NETWORKS)
) -> LayerErrors:
    """Nine layers below 100 us with ``error``, and one below 10 us with ``worst``, of each
    network."""
    layers = [(50.0, error)] * 9 + [(5.0, worst)]
    return LayerErrors(
        tuple(
            ErrorRow(model, NMP, "exact", "l", "conv", 1, us, us * (1 + off), 1)
            for model in models
            for us, off in layers
        )
    )


def test_errors_of_predictions_above_their_goals_are_named() -> None:
    STUDY.check(errors(0.015, -0.049))
    STUDY.check(errors(0.9, 0.9, ("lenet", "resnet50")))
    with pytest.raises(StudyError, match="^below the goal: all layers: .* by 2.[67]% .* is 2%$"):
        STUDY.check(errors(0.025, -0.04))
    with pytest.raises(StudyError) as told:
        STUDY.check(errors(0.0, -0.06))
    assert str(told.value) == (
        "below the goal: exact on nmp-4x8, layers below 10 us: predictions are off by 6.0% on "
        "average, the goal is 5%"
    )


def joined(planner: str, us: float, moved: int) -> list[JoinedRow]:
    return [
        JoinedRow(model, NMP, planner, 1, us, us, moved, None, None) for model in GOAL_NETWORKS
    ]


def test_plans_over_the_graph_that_do_not_pay_are_named() -> None:
    apart = joined(APART, 10.0, 100)
    STUDY.check((*apart, *joined("exact", 10.0, 200), *joined("exact-traffic", 20.0, 100)))
    STUDY.check((*apart, *joined("exact", 11.0, 100)[1:]))
    with pytest.raises(StudyError) as told:
        STUDY.check((*apart, *joined("exact", 10.1, 90), *joined("exact-traffic", 9.0, 101)))
    assert str(told.value) == (
        "below the goal: exact on nmp-4x8 is 0.990 times as fast as exact-layers, not 1, "
        "exact-traffic on nmp-4x8 moves 1.010 times the bytes of exact-layers, not 1"
    )


def test_goals_are_about_all_of_their_networks() -> None:
    """A part of them has none; others beside them do not count."""
    few, slow = sorted(GOAL_NETWORKS)[1:], row("another", NMP, "exact", 1000.0)
    part, whole = measured(1.0, few), measured(2.2)
    STUDY.check(part)
    assert "goal" not in " ".join(tables.summary_lines(part))
    more = Measured((), (*whole.rows, row("another", *BASE, 100.0), slow), (), ())
    STUDY.check(more)
    lines = "\n".join(tables.summary_lines(more))
    assert "exact on nmp-4x8-dual over tso nmp-4x8: 2.200 (goal 2.10)" in lines
    assert "(2.200 over the networks of the goal 1.55)" in lines


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
