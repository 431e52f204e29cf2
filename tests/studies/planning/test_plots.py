"""Drawings of the benchmark and of the scaling study: every format, the same bytes every time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from studies.harness.drawing import FORMATS
from studies.planning.measuring import LayerRow, Measured, Row
from studies.planning.plots import plot
from studies.planning.scaling import TOGETHER, ScalingRow
from studies.planning.scaling_report import growth, plot_scaling, scaling_lines
from studies.shared.simulation import Breakdown
from tvm_npu.codegen.nmp.plan.graph_bound import roofs
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

pytest.importorskip("matplotlib", reason="the plot extra is not installed")

MAGIC = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@dataclass
class Cased:
    """As much of a case as drawings look at."""

    machine: NmpMachine
    top: Any


def study(
    models: tuple[str, ...], machines: tuple[str, ...], planners: tuple[str, ...]
) -> Measured:
    keys = [(m, n, p) for m in models for n in machines for p in planners]
    rows = [
        Row(*key, 100.0 - at, 99.0, 50.0, 0.01, 0.1, 1000, 40.0) for at, key in enumerate(keys)
    ]  # fmt: skip
    layers = [
        LayerRow(*key, f"l{macs}", "conv", macs, 10.0, 11.0, 9.0, 3000)
        for key in keys
        for macs in (0, 10**3, 10**6)
    ]
    cases: list[Any] = [
        Cased(load_nmp_machine(name), roofs(load_nmp_machine(name), 2)) for name in machines
    ]
    parts = tuple(Breakdown(40.0, 10.0, 30.0, 5.0) for _ in rows)
    return Measured(tuple(cases * len(models)), tuple(rows), parts, tuple(layers))


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_format_is_deterministic(file_format: str) -> None:
    small = study(("lenet",), ("nmp-4x8",), ("tso", "exact"))
    one = plot(small, file_format)
    assert one.startswith(MAGIC[file_format])
    assert one == plot(small, file_format)


def test_everything_is_named() -> None:
    both = study(("lenet", "resnet50"), ("nmp-4x8", "nmp-4x8-dual"), ("tso", "exact"))
    text = plot(both, "svg").decode()
    for word in (
        "LeNet", "ResNet-50", "exact, nmp-4x8-dual", "geometric", "goal", "roofline bound",
        "Rooflines of nmp-4x8:", "Rooflines of nmp-4x8-dual:", "reachable 192 GMAC/s", "store",
    ):  # fmt: skip
        assert f"<!-- {word}" in text, word


def test_without_the_base() -> None:
    text = plot(study(("lenet",), ("nmp-4x8",), ("exact",)), "svg").decode()
    assert "No speed-ups: nmp-4x8 tso was not measured" in text and "roofline bound" not in text


def scaled(size: int, width: float, cycles: float, planner: str = "tso") -> ScalingRow:
    return ScalingRow(
        "lenet", size, width, "nmp-4x8", planner, size * 1000, 5, 4, cycles, cycles, cycles / 2,
        0.004,
    )  # fmt: skip


def planned(model: str, distinct: int, planner: str = "tso") -> ScalingRow:
    return ScalingRow(
        model, None, 1.0, "nmp-4x8", planner, 10**6, 9, distinct, None, None, 1e6, 0.002 * distinct
    )


SCALING = [
    *(scaled(size, width, 100.0 * size**2) for width in (0.5, 1.0) for size in (28, 56)),
    planned("lenet", 4), planned("resnet50", 21), planned(TOGETHER, 25),
]  # fmt: skip


def test_scaling_is_named_and_deterministic() -> None:
    drawn = plot_scaling(SCALING, "svg")
    assert drawn == plot_scaling(SCALING, "svg")
    text = drawn.decode()
    for word in ("LeNet: simulated time", "ResNet-50", "together", "width 0.5", "width 1", "56"):
        assert f"<!-- {word}" in text, word


def test_growth_of_a_power() -> None:
    assert growth([(1.0, 5.0), (2.0, 20.0), (4.0, 80.0)]) == pytest.approx(2.0)
    assert growth([(3.0, 1.0), (3.0, 2.0)]) is None and growth([]) is None
    (line,) = scaling_lines(SCALING)
    assert line == (
        "tso on nmp-4x8: simulated cycles grow as MACs to the 2.00, planning takes 1.00 to 2.00 ms "
        "a distinct layer"
    )
