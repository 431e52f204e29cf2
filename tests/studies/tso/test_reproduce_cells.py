"""Statistics over a table that is small enough to compute by hand."""

from __future__ import annotations

import math

import pytest

from studies.shared.titles import TITLES
from studies.tso.cells import Cell, speed_ups, summarize
from studies.tso.published import BURST, COLUMNS, NO_BURST, published_us
from studies.tso.tables import error_lines

TABLE = (
    Cell("a", "burst", 100.0, 110.0, 99.0),
    Cell("a", "KS", 200.0, 100.0, 110.0),
    Cell("a", "OFM", 300.0, 330.0, 330.0),
    Cell("b", "burst", 1000.0, 2000.0, 2000.0),
    Cell("b", "KS", 1500.0, 3000.0, 3000.0),
)


def test_ratio_is_simulated_over_paper() -> None:
    assert [cell.ratio for cell in TABLE] == pytest.approx([1.1, 0.5, 1.1, 2.0, 2.0])


def test_summary() -> None:
    summary = summarize(TABLE)
    assert summary.cells == 5
    assert summary.mean_absolute_error == pytest.approx((0.1 + 0.5 + 0.1 + 1 + 1) / 5)
    assert summary.geometric_mean_ratio == pytest.approx((1.1 * 0.5 * 1.1 * 4) ** 0.2)
    assert summary.mean_prediction_error == pytest.approx((0.1 + 0.1) / 5)
    # ranks 1..5 against 2, 1, 3, 4, 5: 1 - 6 * (1 + 1) / (5 * 24); inside a: 1 - 6 * 2 / 24
    assert summary.rank_correlation == pytest.approx(0.9)
    assert summary.rank_correlation_in_model == pytest.approx((0.5 + 1.0) / 2)


def test_rank_correlation_of_one_value_is_undefined() -> None:
    summary = summarize(TABLE[:1])
    assert summary.rank_correlation is None and summary.rank_correlation_in_model is None
    same = [Cell("a", "x", 1.0, 5.0, 5.0), Cell("a", "y", 2.0, 5.0, 5.0)]
    assert summarize(same).rank_correlation is None
    assert math.isclose(summarize(same).mean_absolute_error, (4 + 1.5) / 2)


def test_where_the_error_sits() -> None:
    cells = [Cell("lenet", "burst", 100.0, 110.0, 1.0), Cell("lenet", "KS", 100.0, 70.0, 1.0)]
    cells.append(Cell("resnet50", "KS", 100.0, 150.0, 1.0))
    assert error_lines(cells) == [
        "  by network: LeNet 20.0%, ResNet-50 50.0%",
        "  by column: burst 10.0%, KS 40.0%",
    ]


def test_no_cells_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one cell"):
        summarize(())


def test_speed_ups_are_over_the_base_of_the_same_model() -> None:
    gains = speed_ups((*TABLE, Cell("c", "KS", 1.0, 1.0, 1.0)), "burst")
    assert [(gain.model, gain.column) for gain in gains] == [("a", "KS"), ("a", "OFM"), ("b", "KS")]
    assert [gain.paper for gain in gains] == pytest.approx([1.0, 2.0, 0.5])
    assert [gain.simulated for gain in gains] == pytest.approx([-1 / 11, 2.0, 0.5])


def test_published_table_agrees_with_the_papers_text() -> None:
    """The text rounds figures 8, 12 and 13: their largest speed-ups tie the table down."""

    def gain(model: str, column: str) -> float:
        chosen = next(one for one in COLUMNS if one.head == column)
        return 100 * (published_us(model, chosen) / published_us(model, BURST) - 1)

    quoted = (
        ("inception_v3", "no burst", 21.7),
        ("squeezenet1.0", "KS", 32.6),
        ("mobilenet_v2", "KS&OFM", 19.0),
        ("resnet50", "OFM", 41.0),
        ("resnet50", "OS", 28.6),
        ("inception_v3", "WS", 39.8),
    )
    for model, column, percent in quoted:
        assert gain(model, column) == pytest.approx(percent, abs=0.06), (model, column)
    for model in TITLES:
        assert all(published_us(model, BURST) <= published_us(model, one) for one in COLUMNS)
    assert NO_BURST in COLUMNS
