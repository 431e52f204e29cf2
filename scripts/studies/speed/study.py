"""How much CPU time plans over graphs and simulations take, beside what the project allows."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from studies.harness.errors import StudyError
from studies.harness.options import add_models, add_several
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.harness.tables import Sheet, print_sheets
from studies.speed.measuring import (
    INSTRUCTIONS,
    Row,
    first_plan,
    instruction,
    planning,
    simulation,
)
from tvm_npu.cli.arguments import positive
from tvm_npu.cli.tables import Column
from tvm_npu.codegen.plan import DEFAULT_PLANNER
from tvm_npu.models import names
from tvm_npu.sim.machine_file import machine_names

PLANNING, SIMULATION = "planning", "simulation"
MACHINES = ("nmp-4x8", "nmp-4x8-dual", "snowflake-1cc", "setup-a")
LAYERS_OF, LAYER_PLANNER = "resnet18", "exact-layers"
SIMULATED, SIMULATED_ON = "resnet50", "nmp-4x8"
NETWORK_LIMIT_S, LAYERS_LIMIT_S, FIRST_LIMIT_S = 2.0, 0.15, 0.3
SIMULATION_LIMIT_S, INSTRUCTION_LIMIT_NS = 0.6, 25.0


class SpeedStudy(Study[list[Row]]):
    name = "bench_speed"
    texts = Texts(
        f"CPU time of plans over graphs ({DEFAULT_PLANNER}) and of simulations: networks on\n"
        f"machines, the layers of {LAYERS_OF} one by one ({LAYER_PLANNER}), the first plan of a\n"
        f"process, {SIMULATED} on {SIMULATED_ON} with values and cycles, scalar instructions.",
        "CPU times grow when other work shares the computer's cores. A figure above its limit\n"
        "makes the exit code 1.",
        {"json": "write one object a figure"},
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_several(
            parser, "--parts", "part", (PLANNING, SIMULATION), (PLANNING, SIMULATION),
            note="what is measured ",
        )  # fmt: skip
        add_models(parser, names())
        add_several(parser, "--machines", "machine", machine_names(), MACHINES)
        parser.add_argument(
            "--runs", type=positive, default=3, metavar="N", help="of each figure (default: 3)"
        )

    def parts(self, options: argparse.Namespace) -> list[Part[list[Row]]]:
        found: list[Part[list[Row]]] = []
        if PLANNING in options.parts:
            for machine in options.machines:
                found += _planning_parts(machine, options.models, options.runs)
        if SIMULATION in options.parts:
            found += _simulation_parts(options.runs)
        return found

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> list[Row]:
        return [row for rows in found.values() for row in rows]

    def rows(self, result: list[Row]) -> Mapping[str, Sequence[Any]]:
        return {"json": result}

    def show(self, console: Console, result: list[Row]) -> None:
        for unit in ("s", "ns"):
            rows = [row for row in result if row.unit == unit]
            if rows:
                print_sheets(console, [Sheet(f"CPU time, {unit}", _columns(rows))])

    def check(self, result: list[Row]) -> None:
        over = [row for row in result if row.is_over]
        if over:
            listed = ", ".join(
                f"{row.what} {row.subject} on {row.machine}: {row.median:.3g} {row.unit} for "
                f"{row.limit:g}"
                for row in over
            )
            raise StudyError(f"above the limit: {listed}")


STUDY = SpeedStudy()


def _columns(rows: Sequence[Row]) -> list[Column]:
    def numbers(of: str) -> tuple[str, ...]:
        digits = 3 if rows[0].unit == "s" else 1
        values = (getattr(row, of) for row in rows)
        return tuple("" if value is None else f"{value:.{digits}f}" for value in values)

    return [
        Column("what", tuple(row.what for row in rows), name=True),
        Column("of", tuple(row.subject for row in rows), name=True),
        Column("machine", tuple(row.machine for row in rows), name=True),
        *(Column(of, numbers(of)) for of in ("first", "median", "least", "limit")),
    ]


def _planning_parts(machine: str, models: Sequence[str], runs: int) -> list[Part[list[Row]]]:
    first = partial(first_plan, machine, FIRST_LIMIT_S, runs)
    layers = partial(planning, "layers", LAYERS_OF, machine, LAYER_PLANNER, LAYERS_LIMIT_S, runs)
    parts = [_apart(("first plan", machine), first), _apart(("layers", machine), layers)]
    for model in models:
        whole = partial(planning, "network", model, machine, DEFAULT_PLANNER, NETWORK_LIMIT_S, runs)
        parts.append(_apart(("network", model, machine), whole))
    return parts


def _simulation_parts(runs: int) -> list[Part[list[Row]]]:
    network = partial(simulation, SIMULATED, SIMULATED_ON, SIMULATION_LIMIT_S, runs)
    parts = [_here(("simulation", SIMULATED, SIMULATED_ON), network)]
    for name in INSTRUCTIONS:
        limit = None if name == "addi" else INSTRUCTION_LIMIT_NS
        one = partial(instruction, name, SIMULATED_ON, limit, runs)
        parts.append(_here(("instruction", name), one))
    return parts


def _apart(key: Key, compute: Callable[[Path], list[Row]]) -> Part[list[Row]]:
    """A part that leaves files for processes of its own."""

    def run(bench: Bench) -> list[Row]:
        bench.scratch.mkdir(parents=True, exist_ok=True)
        return compute(bench.scratch)

    return Part(key, list[Row], run)


def _here(key: Key, compute: Callable[[], list[Row]]) -> Part[list[Row]]:
    return Part(key, list[Row], lambda bench: compute())
