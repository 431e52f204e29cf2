"""The planning benchmark: plans simulated beside their prediction, their bound and their price."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from studies.planning.brute_force import BruteForce, BruteForceError, load_brute_force
from studies.planning.plots import plot
from studies.planning.scaling import SIZES, WIDTHS, ScalingRow, run_scaling
from studies.planning.scaling_report import plot_scaling, print_scaling
from studies.planning.study import LayerRow, Row, run_study
from studies.planning.tables import print_study
from studies.tso.command import check_outputs, exit_code
from studies.tso.drawing import FORMATS
from studies.tso.tso_published import TITLES
from tvm_npu.cli.errors import CliError
from tvm_npu.cli.files import write_bytes, write_json
from tvm_npu.cli.terminal import Terminal, open_terminal
from tvm_npu.codegen.plan import planner_names
from tvm_npu.models import names
from tvm_npu.sim.errors import MachineError
from tvm_npu.sim.machine_file import machine_names
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

MACHINES = ("nmp-4x8", "nmp-4x8-dual")
SCALED = "mobilenet_v2"
PLANNERS = ("tso", "tso-noburst", "exact-dma", "exact")
EPILOG = f"""\
machines: {", ".join(machine_names())}, or a machine file
planners: {", ".join(planner_names())}

exit codes: 0 done; 1 values differ, a layer has no plan, or a file cannot be written;
            2 the command line is wrong
"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench_planning",
        description="Networks under planners on machines: simulated and predicted time, the\n"
        "roofline bound, DRAM traffic, and how long planning takes beside a brute force in C.\n"
        "Every simulated value is checked against the reference, bit for bit.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--layers", type=Path, metavar="FILE", help="the same for every layer")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE",
        help=f"draw it ({', '.join('.' + one for one in FORMATS)}); needs matplotlib",
    )  # fmt: skip
    parser.add_argument(
        "--models", nargs="+", type=_model, metavar="NAME", default=list(TITLES),
        help=f"of: {', '.join(names())} (default: {' '.join(TITLES)})",
    )  # fmt: skip
    parser.add_argument(
        "--machines", nargs="+", type=_machine, metavar="NAME",
        default=[load_nmp_machine(name) for name in MACHINES],
        help=f"see below (default: {' '.join(MACHINES)})",
    )  # fmt: skip
    parser.add_argument(
        "--planners", nargs="+", type=_planner, metavar="NAME", default=list(PLANNERS),
        help=f"see below (default: {' '.join(PLANNERS)})",
    )  # fmt: skip
    parser.add_argument(
        "--scaling", nargs="?", type=_model, const=SCALED, metavar="NAME",
        help=f"instead: how time grows when the network NAME (default: {SCALED}) is scaled from "
        f"{SIZES[0]} to {SIZES[-1]} input pixels and from {WIDTHS[0]:g} to {WIDTHS[-1]:g} of its "
        "width, and how planning time grows with the number of distinct layers of all --models",
    )  # fmt: skip
    return parser


def _model(name: str) -> str:
    if name not in names():
        raise argparse.ArgumentTypeError(f"unknown model {name!r}; known: {', '.join(names())}")
    return name


def _planner(name: str) -> str:
    if name not in planner_names():
        known = ", ".join(planner_names())
        raise argparse.ArgumentTypeError(f"unknown planner {name!r}; known: {known}")
    return name


def _machine(name: str) -> NmpMachine:
    try:
        return load_nmp_machine(name)
    except MachineError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(options: argparse.Namespace) -> None:
    """Raises ReproductionError and CliError."""
    check_outputs([options.json, options.layers], options.plot)
    terminal = open_terminal()
    models, machines, planners = (
        list(dict.fromkeys(chosen))
        for chosen in (options.models, options.machines, options.planners)
    )
    twice = [name for name, count in Counter(m.name for m in machines).items() if count > 1]
    if twice:
        raise CliError(f"two different machines are called {twice[0]!r}; rows would be mixed up")
    if options.scaling is not None:
        _scale(options, terminal, models, machines, planners)
    else:
        _measure(options, terminal, models, machines, planners)


def _measure(
    options: argparse.Namespace,
    terminal: Terminal,
    models: list[str],
    machines: list[NmpMachine],
    planners: list[str],
) -> None:
    brute_force: BruteForce | None = None
    missing: str | None = None
    try:
        brute_force = load_brute_force()
    except BruteForceError as error:
        missing = str(error)
    with terminal.steps() as steps:
        study = run_study(models, machines, planners, brute_force, steps)
    _write(options.json, study.rows)
    _write(options.layers, study.layers)
    if options.plot is not None:
        write_bytes(options.plot, plot(study, options.plot.suffix[1:].lower()))
    print_study(terminal.out, study, missing)


def _scale(
    options: argparse.Namespace,
    terminal: Terminal,
    models: list[str],
    machines: list[NmpMachine],
    planners: list[str],
) -> None:
    if options.layers is not None:
        raise CliError("--layers is not for --scaling, which has one row a network")
    with terminal.steps() as steps:
        rows = run_scaling(options.scaling, models, machines, planners, SIZES, WIDTHS, steps)
    _write(options.json, rows)
    if options.plot is not None:
        write_bytes(options.plot, plot_scaling(rows, options.plot.suffix[1:].lower()))
    print_scaling(terminal.out, rows)


def _write(path: Path | None, rows: Sequence[Row | LayerRow | ScalingRow]) -> None:
    """Flat objects."""
    if path is not None:
        write_json(path, [asdict(row) for row in rows])


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    return exit_code("bench_planning", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
