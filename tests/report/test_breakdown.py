"""What binds a layer, from figures that are known."""

from __future__ import annotations

from typing import Any

import pytest

from tvm_npu.codegen.program.parts import CodeRange, LayerEntry
from tvm_npu.report.breakdown import Roofs, break_down
from tvm_npu.report.model_macs import macs_by_layer
from tvm_npu.report.placement import RegionReport
from tvm_npu.sim.machine_file import load_machine, machine_names
from tvm_npu.sim.statistics import Statistics, UnitStatistics


def measured(
    cycles: float, macs: int = 0, loaded: int = 0, **busy: tuple[float, ...]
) -> Statistics:
    units = tuple(
        UnitStatistics(f"{role} {k}", role, value, 0.0)  # type: ignore[arg-type]
        for role, values in busy.items()
        for k, value in enumerate(values)
    )
    links = {"loaded": {"in": loaded}, "stored": {}}
    return Statistics(cycles, macs, 0.0, links, {}, 0, units, 1, 4)


@pytest.mark.parametrize(
    ("busy", "bound", "waits"),
    [
        ({"mac": (10, 90), "dma": (80,), "control": (5,)}, "mac", 10),
        ({"mac": (10, 70), "dma": (80,), "control": (5,)}, "dma", 20),
        ({"mac": (10,), "dma": (20,), "control": (60,)}, "control", 40),
        ({"mac": (49,), "dma": (48,), "control": (5,)}, "waits", 51),
        ({"dma": (120,)}, "dma", 0),
    ],
)
def test_the_busiest_unit_binds(busy: Any, bound: str, waits: float) -> None:
    found = break_down(measured(100, **busy), 0, Roofs(8, None))
    assert (found.bound, found.wait_cycles) == (bound, waits)
    assert found.mac_cycles == max(busy.get("mac", (0,)))


def test_units_of_several_devices_are_those_of_one() -> None:
    found = break_down(measured(100, mac=(180,), dma=(40,)), 0, Roofs(8, None), devices=2)
    assert (found.bound, found.mac_cycles, found.wait_cycles) == ("mac", 90, 10)


def test_the_higher_roof_counts_and_left_out_products_do_not() -> None:
    roofs = Roofs(8, 4)
    compute = break_down(measured(100, 400, loaded=100), 480, roofs)
    assert (compute.roof, compute.roofline_cycles, compute.roofline_share) == ("compute", 50, 0.5)
    memory = break_down(measured(100, 400, loaded=320), 400, roofs)
    assert (memory.roof, memory.roofline_cycles) == ("memory", 80)
    assert roofs.ridge == 2 and Roofs(8, None).least_cycles(0, 99) == (0, "compute")
    assert break_down(measured(0), 0, roofs).roofline_share == 0.0


def test_every_machine_has_a_peak_rate() -> None:
    for name in machine_names():
        machine = load_machine(name)
        roofs = Roofs.of(machine, 2)
        assert roofs.macs_per_cycle >= machine.device_count * machine.core_count * 0.1
        rate = machine.dram_bytes_per_cycle
        assert rate is None or roofs.bytes_per_cycle == rate * machine.device_count


def entry(name: str, macs: int, *source: str) -> LayerEntry:
    return LayerEntry(name, "conv", source, "int16", None, None, macs, (CodeRange(0, 4),))


def region(*operators: tuple[str, int]) -> RegionReport:
    names = tuple((name, "nn.conv2d") for name, _ in operators)
    counts = tuple(macs for _, macs in operators)
    return RegionReport("r", names, (), (), sum(counts), counts)


def test_layers_have_the_macs_of_their_operators() -> None:
    layers = [entry("a+b", 130, "a", "b"), entry("c", 0, "c"), entry("c/2", 9, "c"),
              entry("d", 3, "d"), entry("e", 1, "e"), entry("e/2", 2, "e")]  # fmt: skip
    found = macs_by_layer(region(("a", 100), ("b", 20), ("c", 9), ("d", 0), ("e", 7)), layers, 1)
    assert found == [120, 0, 9, 0, 2, 5]
    unknown = region(("a", 100), ("elsewhere", 1))
    assert macs_by_layer(unknown, layers[:2], 2) == [260, 0]
