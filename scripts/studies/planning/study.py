"""The planning benchmark: plans simulated beside their prediction, their bound and their price."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console

from studies.harness.errors import StudyError
from studies.harness.options import (
    Distinct,
    add_machines,
    add_models,
    add_planners,
    check_distinct_names,
    check_planners,
    known,
    machine_of,
)
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.planning.errors import ErrorRow, error_rows, missed_errors
from studies.planning.errors_report import print_errors
from studies.planning.figures import missed_goals
from studies.planning.joining import APART, JOINED, JoinedRow, joined_row
from studies.planning.joining_report import missed_gains, print_joined
from studies.planning.measuring import (
    Case,
    Measured,
    Planned,
    plan_and_run,
    prepare_case,
    with_brute_force,
)
from studies.planning.plots import plot
from studies.planning.scaling import (
    SIZES,
    TOGETHER,
    WIDTHS,
    OnlyPlanned,
    ScalingRow,
    only_planned,
    planned_together,
    scaled,
)
from studies.planning.scaling_report import plot_scaling, print_scaling
from studies.planning.tables import print_measured
from studies.shared.titles import TITLES
from tvm_npu.cli.errors import CliError
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

MACHINES = ("nmp-4x8", "nmp-4x8-dual")
SCALED = "mobilenet_v2"
PLANNERS = ("tso", "tso-noburst", "exact-dma", "exact")
NETWORK, PLANNING = "network, brute force", "planning"
JOINED_MACHINES = ("snowflake-1cc", "setup-a", "setup-b", "setup-c", "setup-d")
ERROR_MACHINES = (*MACHINES, "setup-a", "snowflake-1cc", "snowflake-4cc")
ERROR_PLANNERS = ("exact",)
Joined = tuple[JoinedRow, ...]


@dataclass(frozen=True)
class LayerErrors:
    """What `--errors` finds."""

    rows: tuple[ErrorRow, ...]


Result = Measured | list[ScalingRow] | Joined | LayerErrors


class PlanningStudy(Study[Result]):
    name = "bench_planning"
    texts = Texts(
        "Networks under planners on machines: simulated and predicted time, the\n"
        "roofline bound, DRAM traffic, and how long planning takes beside a brute force in C.\n"
        "Every simulated value is checked against the reference, bit for bit.",
        "With all networks by default, what misses its goal makes the exit code 1: speed-ups,\n"
        "bytes, gains of plans over the graph, errors of predictions.",
        {"json": "write the rows as JSON", "layers": "the same for every layer"},
    )
    draws = True

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        from tvm_npu.models import names

        add_models(parser, tuple(TITLES))
        add_machines(parser, MACHINES, isa="nmp")
        add_planners(parser, PLANNERS)
        parser.set_defaults(machines=None, planners=None)  # these depend on what is asked
        parser.add_argument(
            "--scaling", nargs="?", type=known("model", names()), const=SCALED, metavar="NAME",
            help=f"instead: how time grows when the network NAME (default: {SCALED}) is scaled "
            f"from {SIZES[0]} to {SIZES[-1]} input pixels and from {WIDTHS[0]:g} to {WIDTHS[-1]:g} "
            "of its width, and how planning time grows with the number of distinct layers of all "
            "--models",
        )  # fmt: skip
        parser.add_argument(
            "--joined", nargs="*", type=machine_of(load_machine), action=Distinct,
            metavar="NAME|FILE",
            help="instead: what plans over the graph gain: --planners (default: "
            f"{JOINED}) beside {APART} on these machines, of any kind (default: "
            f"{' '.join(JOINED_MACHINES)})",
        )  # fmt: skip
        parser.add_argument(
            "--errors", nargs="*", type=machine_of(load_machine), action=Distinct,
            metavar="NAME|FILE",
            help="instead: predicted beside simulated time of every layer on these machines, of "
            f"any kind (default: {' '.join(ERROR_MACHINES)}), under --planners (default: "
            f"{' '.join(ERROR_PLANNERS)}); --json and --layers both write a row a layer",
        )  # fmt: skip

    def parts(self, options: argparse.Namespace) -> list[Part[Any]]:
        if options.errors is not None:
            return _error_parts(options)
        if options.joined is not None:
            return _joined_parts(options)
        options.planners = options.planners or list(PLANNERS)
        options.machines = options.machines or [load_nmp_machine(name) for name in MACHINES]
        check_distinct_names(options.machines)
        check_planners(options.planners, options.machines)
        if options.scaling is not None:
            if options.layers is not None:
                raise CliError("--layers is not for --scaling, which has one row a network")
            return _scaling_parts(options)
        parts: list[Part[Any]] = []
        for model in options.models:
            for machine in options.machines:
                parts.append(
                    Part((model, machine.name, NETWORK), Case, partial(_case, model, machine))
                )
                parts += [
                    Part((model, machine.name, name), Planned, partial(_run, model, machine, name))
                    for name in options.planners
                ]
        return parts

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> Result:
        if options.errors is not None:
            return LayerErrors(tuple(row for rows in found.values() for row in rows))
        if options.joined is not None:
            return tuple(found.values())
        if options.scaling is not None:
            return [
                row
                for value in found.values()
                for row in (value.rows if isinstance(value, OnlyPlanned) else value)
            ]
        planned = [value for value in found.values() if isinstance(value, Planned)]
        return Measured(
            tuple(value for value in found.values() if isinstance(value, Case)),
            tuple(one.row for one in planned),
            tuple(one.breakdown for one in planned),
            tuple(layer for one in planned for layer in one.layers),
        )

    def rows(self, result: Result) -> Mapping[str, Sequence[Any]]:
        if isinstance(result, Measured):
            return {"json": result.rows, "layers": result.layers}
        if isinstance(result, LayerErrors):
            return {"json": result.rows, "layers": result.rows}
        return {"json": result}

    def draw(self, result: Result, file_format: str) -> bytes:
        if isinstance(result, Measured):
            return plot(result, file_format)
        assert isinstance(result, list), "options that draw nothing are refused"
        return plot_scaling(result, file_format)

    def show(self, console: Console, result: Result) -> None:
        if isinstance(result, Measured):
            print_measured(console, result)
        elif isinstance(result, tuple):
            print_joined(console, result)
        elif isinstance(result, LayerErrors):
            print_errors(console, result.rows)
        else:
            print_scaling(console, result)

    def check(self, result: Result) -> None:
        missed: list[str] = []
        if isinstance(result, Measured):
            missed = missed_goals(result.rows)
        elif isinstance(result, LayerErrors):
            missed = missed_errors(result.rows)
        elif isinstance(result, tuple):
            missed = missed_gains(result)
        if missed:
            raise StudyError(f"below the goal: {', '.join(missed)}")


STUDY = PlanningStudy()


def _case(model: str, machine: NmpMachine, bench: Bench) -> Case:
    return with_brute_force(prepare_case(model, machine))


def _run(model: str, machine: NmpMachine, name: str, bench: Bench) -> Planned:
    case: Case = bench.found[model, machine.name, NETWORK]
    return plan_and_run(prepare_case(model, machine), name, case.brute_force)


def _error_parts(options: argparse.Namespace) -> list[Part[Any]]:
    """All planners for every network and machine."""
    for name in ("scaling", "joined", "plot"):
        if getattr(options, name) is not None:
            raise CliError(f"--{name} is not for --errors, which has tables and rows alone")
    _check_machines(options, "errors")
    machines = options.errors or [load_machine(name) for name in ERROR_MACHINES]
    planners = options.planners or list(ERROR_PLANNERS)
    check_distinct_names(machines)
    check_planners(planners, machines)
    return [
        Part((model, machine.name, name), list[ErrorRow], partial(_errors, model, machine, name))
        for model in options.models
        for machine in machines
        for name in planners
    ]


def _errors(model: str, machine: MachineDescription, name: str, bench: Bench) -> list[ErrorRow]:
    return error_rows(model, machine, name)


def _joined_parts(options: argparse.Namespace) -> list[Part[Any]]:
    """All planners, and the one that they are compared with, for every network and machine."""
    for name in ("scaling", "layers", "plot"):
        if getattr(options, name) is not None:
            raise CliError(f"--{name} is not for --joined, which has a table and rows alone")
    _check_machines(options, "joined")
    machines = options.joined or [load_machine(name) for name in JOINED_MACHINES]
    planners = [name for name in options.planners or [JOINED] if name != APART]
    if not planners:
        raise CliError(f"--planners for --joined: name planners to compare with {APART}")
    check_distinct_names(machines)
    check_planners((*planners, APART), machines)
    return [
        Part((model, machine.name, name), JoinedRow, partial(_joined, model, machine, name))
        for model in options.models
        for machine in machines
        for name in (*planners, APART)
    ]


def _check_machines(options: argparse.Namespace, instead: str) -> None:
    """CliError for machines that nothing would run on."""
    if options.machines is not None:
        raise CliError(f"--machines is not for --{instead}, behind which its own machines stand")


def _joined(model: str, machine: MachineDescription, name: str, bench: Bench) -> JoinedRow:
    return joined_row(model, machine, name)


def _scaling_parts(options: argparse.Namespace) -> list[Part[Any]]:
    """One network simulated at every size and width, values checked; networks planned at their
    published sizes, one by one and together."""
    parts: list[Part[Any]] = []
    for machine in options.machines:
        for width in WIDTHS:
            for size in SIZES:
                key = (options.scaling, machine.name, f"{size}x{size}", f"width {width:g}")
                compute = partial(_scaled, options.scaling, machine, size, width, options.planners)
                parts.append(Part(key, list[ScalingRow], compute))
        for model in options.models:
            alone = partial(_only_planned, model, machine, options.planners)
            parts.append(Part((model, machine.name, PLANNING), OnlyPlanned, alone))
        if len(options.models) > 1:
            together = partial(_together, machine, options)
            parts.append(Part((TOGETHER, machine.name), list[ScalingRow], together))
    return parts


def _scaled(
    model: str, machine: NmpMachine, size: int, width: float, planners: Sequence[str], bench: Bench
) -> list[ScalingRow]:
    return scaled(model, machine, size, width, planners)


def _only_planned(
    model: str, machine: NmpMachine, planners: Sequence[str], bench: Bench
) -> OnlyPlanned:
    return only_planned(model, machine, planners)


def _together(machine: NmpMachine, options: argparse.Namespace, bench: Bench) -> list[ScalingRow]:
    cases = [bench.found[model, machine.name, PLANNING].case for model in options.models]
    return planned_together(TOGETHER, cases, machine, options.planners)
