"""The double-buffer reproduction: a small layer through all ways, tables, files, mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from studies.double_buffer.measuring import (
    RUNS,
    LayerRow,
    plans_of,
    row_of,
    run_layer,
    tile_machine,
    without_core_time,
)
from studies.double_buffer.plots import plot
from studies.double_buffer.published import NAIVE_MEMORY_SHARES, OPTIMAL_MEMORY_SHARES
from studies.double_buffer.study import STUDY
from studies.double_buffer.tables import lines, tables
from studies.harness.command import main
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.tiles.plan.direct import DirectPlan, DirectPlanner

# As conv6_1, with fewer channels: weights are most of what moves.
SMALL = ConvProblem(
    filters=128, channels=128, groups=1, rows=12, columns=16, in_rows=12, in_columns=16,
    kernel=(3, 3), stride=(1, 1), dilation=(1, 1), padding=(1, 1, 1, 1), element_bytes=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def row() -> LayerRow:
    assert len(RUNS) == 8
    return row_of("conv6_1", plans_of(SMALL), {run: run_layer(SMALL, *run) for run in RUNS})


def test_values_and_times(row: LayerRow) -> None:
    assert row.bit_mismatches == 0
    assert 0 < row.optimal_cycles <= row.naive_cycles
    assert 0 < row.naive_memory_share <= 1 and 0 < row.optimal_memory_share <= 1
    assert row.uncached_none_s > row.uncached_optimal_s > row.cached_optimal_s > 0
    assert row.median_ratio >= row.quarter_ratio >= 1


def test_report_and_plot(row: LayerRow) -> None:
    first, second = tables([row])
    assert all(len(one.cells) == 1 for sheet in (first, second) for one in sheet.columns)
    text = "\n".join(lines([row]))
    assert "Bits off: 0." in text and "paper" in text
    assert plot([row], "png").startswith(b"\x89PNG")


def test_published_shares_name_the_same_layers() -> None:
    assert list(NAIVE_MEMORY_SHARES) == list(OPTIMAL_MEMORY_SHARES)


def test_a_core_that_takes_no_time() -> None:
    machine = without_core_time(tile_machine("zynq-7020"))
    assert machine.core is not None and machine.core.mac_cycles == 0
    assert machine.dmac == tile_machine("zynq-7020").dmac


def test_working_outside_of_the_chip_takes_a_core_and_wide_elements() -> None:
    core = tile_machine("zynq-7020")
    stored = ConvProblem(**{**SMALL.__dict__, "element_bytes": 4, "accumulator_bytes": 4})
    assert isinstance(DirectPlanner().plan(stored, core), DirectPlan)
    none = DirectPlanner().plan(stored, tile_machine("setup-a"))
    assert isinstance(none, Infeasible) and "core" in str(none)
    narrow = ConvProblem(**{**SMALL.__dict__, "element_bytes": 4, "accumulator_bytes": 8})
    refused = DirectPlanner().plan(narrow, core)
    assert isinstance(refused, Infeasible) and refused.needed_bytes == 8
    many = ConvProblem(**{**stored.__dict__, "filters": 1 << 16})
    refused = DirectPlanner().plan(many, core)
    assert isinstance(refused, Infeasible) and "bias memory" in str(refused)


@pytest.mark.relay
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx")
    target = tmp_path / "rows.json"
    assert main(STUDY, ["--layers", "conv6", "--json", str(target)]) == 0
    (found,) = json.loads(target.read_text())
    assert found["layer"] == "conv6" and found["bit_mismatches"] == 0
    assert "conv6" in capsys.readouterr().out
    assert main(STUDY, ["--json", str(tmp_path / "missing" / "rows.json")]) == 1
    with pytest.raises(SystemExit) as stop:
        main(STUDY, ["--layers", "conv9"])
    assert stop.value.code == 2
