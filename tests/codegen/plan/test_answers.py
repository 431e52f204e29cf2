"""What every planner answers for some layers on machines of both kinds: predicted cycles, bytes
moved and tiles, as recorded before planners met in the middle; on tile machines, tiles and bytes of
`exact-traffic` as recorded when its plans could keep rows, and cycles, and tiles of `exact`, when
walks over all steps said the time; on NMPs when all TLEs were taken to be in step at the DRAM, and
TLTs to multiply while others load."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tvm_npu.codegen.plan import planner, planner_names
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_file import load_machine, machine_from_dict
from tvm_npu.sim.machine_parts import Precision

RECORDED: dict[str, dict[str, list[float]]] = json.loads(
    (Path(__file__).parent / "golden" / "answers.json").read_text()
)


def conv(
    filters: int, channels: int, rows: int, columns: int, kernel: int, groups: int = 1,
    **changes: Any,
) -> ConvProblem:  # fmt: skip
    edge = kernel // 2
    return ConvProblem(
        filters, channels, groups, rows, columns, rows, columns, (kernel, kernel), (1, 1), (1, 1),
        (edge,) * 4, 2, **changes,
    )  # fmt: skip


LAYERS = {
    "small3x3": conv(16, 16, 14, 14, 3),
    "grouped": conv(24, 36, 13, 13, 5, groups=4),
    "oblong": conv(10, 7, 9, 51, 3),
    "residual": conv(64, 32, 14, 14, 3, has_residual=True),
}


def machine_called(name: str) -> MachineDescription:
    if name != "tight-shared":
        return load_machine(name)
    values = load_machine("setup-a").model_dump()
    values |= {"name": name, "memories": {"shared_bytes": 6000, "bias_bytes": 256}}
    return machine_from_dict(values)


def asked(layer: str, machine: MachineDescription) -> ConvProblem:
    """The layer in one of the machine's precisions."""
    other: Precision = "int8" if machine.default_precision == "int16" else "int16"
    precision = machine.default_precision if len(layer) % 2 else other
    problem = replace(LAYERS[layer], element_bytes=machine.stored_element_bytes(precision))
    widths = getattr(machine, "accumulator_bytes", None)
    return problem if widths is None else replace(problem, accumulator_bytes=widths(precision))


@pytest.mark.parametrize("case", sorted(RECORDED))
def test_answers_are_the_recorded_ones(case: str) -> None:
    name, layer = case.split("/")
    machine = machine_called(name)
    problem = asked(layer, machine)
    for planner_name, (cycles, moved, *tile) in RECORDED[case].items():
        plan = planner(planner_name).plan(problem, machine)
        said = plan.prediction
        assert said.cycles == pytest.approx(cycles, rel=1e-12), planner_name
        assert said.in_bytes + said.weight_bytes + said.out_bytes == moved, planner_name
        assert [plan.tile_m, plan.tile_n, plan.tile_r, plan.tile_c] == tile, planner_name
        assert plan.planner == planner_name


def test_all_planners_are_recorded_on_both_kinds() -> None:
    for case in ("nmp-4x8/small3x3", "setup-b/small3x3", "zynq-7020/grouped"):
        assert set(RECORDED[case]) == set(planner_names(machine_called(case.split("/")[0])))
