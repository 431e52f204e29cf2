"""The TSO reproduction on its smallest network, its files and its errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from studies.harness.command import main
from studies.harness.errors import StudyError
from studies.shared.networks import Network, prepare
from studies.shared.simulation import layer_breakdown, measure
from studies.tso.strategy import ForConvolutions
from studies.tso.study import STUDY
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.runtime.session import Session
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine
from tvm_npu.sim.statistics import UnitStatistics

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main(STUDY, [str(argument) for argument in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def machine() -> NmpMachine:
    return load_nmp_machine("nmp-4x8")


@pytest.fixture(scope="module")
def lenet(machine: NmpMachine) -> Network:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    return prepare("lenet", machine, "int16")


@pytest.mark.relay
def test_lenet_through_two_columns(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    path = tmp_path / "cells.json"
    plot = tmp_path / "cells.svg"
    code, out, err = run(
        "--models", "lenet", "--columns", "OFM", "tso", "--json", path, "--plot", plot
    )
    assert (code, err) == (0, "")
    cells = json.loads(path.read_text())
    assert [sorted(cell) for cell in cells] == [
        ["column", "model", "paper_us", "predicted_us", "simulated_us"]
    ] * 2
    assert [(cell["model"], cell["column"], cell["paper_us"]) for cell in cells] == [
        ("lenet", "burst", 199.0),
        ("lenet", "OFM", 231.0),
    ]
    for cell in cells:
        assert cell["predicted_us"] == pytest.approx(cell["simulated_us"], rel=0.1)
        assert f"{cell['simulated_us']:,.0f}" in out
    assert cells[0]["simulated_us"] < cells[1]["simulated_us"]
    assert "LeNet" in out and "+16.1%" in out and "Spearman" in out
    assert "12 layers of all cells" in out and "Pearson" in out
    drawing = plot.read_text()
    assert drawing.startswith("<?xml") and "</svg>" in drawing


@pytest.mark.relay
def test_sums_of_one_network(lenet: Network, machine: NmpMachine) -> None:
    """Cycles are the session's own; the four parts add up to them."""
    (region,) = lenet.regions
    session = Session(compile_fixed(region.fixed, machine, ForConvolutions("fixed-ws")))
    session.run_fixed(region.inputs)
    assert session.statistics is not None
    measured = measure(lenet, machine, ForConvolutions("fixed-ws"))
    assert measured.cycles == session.statistics.cycles
    assert measured.time_us == session.statistics.time_us
    parts = measured.breakdown
    assert parts.total_cycles == pytest.approx(measured.cycles)
    shares = (parts.load_cycles, parts.store_cycles, parts.mac_cycles, parts.other_cycles)
    assert min(shares) > 0
    assert (lenet.npu_mac_share, lenet.cpu_operators, lenet.layers) == (1.0, 0, 7)


@pytest.mark.relay
def test_two_regions_cost_twice_one(lenet: Network, machine: NmpMachine) -> None:
    once = measure(lenet, machine, planner("tso"))
    twice = measure(replace(lenet, regions=lenet.regions * 2), machine, planner("tso"))
    assert twice.cycles == 2 * once.cycles
    assert twice.predicted_us == pytest.approx(2 * once.predicted_us)


@pytest.mark.relay
def test_one_wrong_bit_is_an_error(lenet: Network, machine: NmpMachine) -> None:
    (region,) = lenet.regions
    wrong = region.expected[0].copy()
    wrong.flat[3] ^= 1
    bad = replace(lenet, regions=(replace(region, expected=(wrong,)),))
    with pytest.raises(StudyError, match=r"'lenet', planner 'tso'.* in 1 of 10 elements"):
        measure(bad, machine, planner("tso"))


@pytest.mark.relay
def test_overlap_counts_once(lenet: Network, machine: NmpMachine) -> None:
    (region,) = lenet.regions
    program = compile_fixed(region.fixed, machine, "tso")
    session = Session(program)
    session.run_fixed(region.inputs)
    assert session.statistics is not None
    entry, layer = program.layers[0], session.statistics.layers[0]
    macs = (0.0,) * 8 + (6.0, 2.0) + (0.0,) * 22
    moves = (3.0, 10.0, 0.0, 0.0)
    units = [UnitStatistics("mac", "mac", cycles, 0.0) for cycles in macs]
    units += [UnitStatistics("dma", "dma", cycles, 0.0) for cycles in moves]
    layer = replace(layer, cycles=8.0, units=tuple(units))
    entry = replace(entry, plan={"prediction": {"load_cycles": 30.0, "store_cycles": 10.0}})
    parts = layer_breakdown(entry, layer, machine)
    assert (parts.load_cycles, parts.store_cycles) == pytest.approx((3.75, 1.25))
    assert (parts.mac_cycles, parts.other_cycles) == pytest.approx((3.0, 0.0))
    idle = layer_breakdown(entry, replace(layer, cycles=20.0), machine)
    assert (idle.mac_cycles, idle.other_cycles) == pytest.approx((6.0, 4.0))


def test_strategies_are_about_convolutions(machine: NmpMachine) -> None:
    fixed = ForConvolutions("fixed-ofm")
    dense = ConvProblem(
        filters=64, channels=64, groups=1, rows=1, columns=1, in_rows=1, in_columns=1,
        kernel=(1, 1), stride=(1, 1), dilation=(1, 1), padding=(0, 0, 0, 0), element_bytes=2,
        is_dense=True,
    )  # fmt: skip
    convolution = replace(
        dense, rows=16, columns=16, in_rows=16, in_columns=16, filters=256, is_dense=False
    )
    plan = fixed.plan(convolution, machine)
    assert isinstance(plan, ConvPlan) and (plan.split, plan.planner) == ("OFM", "fixed-ofm")
    assert planner("tso").plan(convolution, machine) != plan
    assert fixed.plan(dense, machine) == planner("tso").plan(dense, machine)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--models", "yolo"), "unknown model 'yolo'; known: inception_v3, lenet,"),
        (("--columns", "KSOFM"), "unknown column 'KSOFM'; known: 'burst', 'no burst', 'KS',"),
        (("--models",), "expected at least one argument"),
    ],
)
def test_wrong_command_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_files_are_checked_before_the_work(run: Run, tmp_path: Path, option: str) -> None:
    missing = tmp_path / "no" / "such.png"
    code, out, err = run("--models", "lenet", option, missing)
    assert (code, out) == (1, "")
    assert f"cannot write {str(missing)!r}: there is no folder" in err
    code, _, err = run("--models", "lenet", option, tmp_path)
    assert code == 1 and "it is a folder" in err


def test_unknown_plot_format(run: Run, tmp_path: Path) -> None:
    code, _, err = run("--plot", tmp_path / "cells.doc")
    assert code == 1
    assert "its suffix must be one of .png, .svg, .pdf" in err


def test_plot_without_matplotlib(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = run("--plot", tmp_path / "cells.png")
    assert code == 1
    assert "plots need matplotlib: pip install '.[plot]'" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.relay
def test_same_sample_every_time(lenet: Network, machine: NmpMachine) -> None:
    again = prepare("lenet", machine, "int16")
    for one, two in zip(lenet.regions, again.regions, strict=True):
        for a, b in zip((*one.inputs, *one.expected), (*two.inputs, *two.expected), strict=True):
            np.testing.assert_array_equal(a, b)
    for values in (*lenet.regions[0].inputs, *lenet.regions[0].expected):
        assert values.min() < -1000 and values.max() > 1000
