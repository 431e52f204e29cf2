"""The planning benchmark: plans simulated beside their prediction, their bound and their price."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tvm_npu.bench_planning.brute_force import BruteForce, BruteForceError, load_brute_force
from tvm_npu.bench_planning.study import run_study
from tvm_npu.bench_planning.tables import print_study
from tvm_npu.cli.errors import CliError
from tvm_npu.cli.files import check_writable, write_json
from tvm_npu.cli.terminal import open_terminal
from tvm_npu.codegen.plan import planner_names
from tvm_npu.models import names
from tvm_npu.reproduce.errors import ReproductionError
from tvm_npu.reproduce.tso_published import TITLES
from tvm_npu.sim.errors import MachineError
from tvm_npu.sim.machine import Machine, load_machine, machine_names

DONE, FAILED, INTERRUPTED = 0, 1, 130
MACHINES = ("nmp-4x8",)
PLANNERS = ("tso", "tso-noburst", "exact")
EPILOG = f"""\
machines: {", ".join(machine_names())}, or a machine file
planners: {", ".join(planner_names())}

exit codes: 0 done; 1 values differ, a layer has no plan, or a file cannot be written;
            2 the command line is wrong
"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench_planning",
        description="Networks under planners on machines: simulated and predicted time, the "
        "roofline bound, DRAM traffic, and how long planning takes beside a brute force in C. "
        "Every simulated value is checked against the reference, bit for bit.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--layers", type=Path, metavar="FILE", help="the same for every layer")
    parser.add_argument(
        "--models", nargs="+", type=_model, metavar="NAME", default=list(TITLES),
        help=f"of: {', '.join(names())} (default: {' '.join(TITLES)})",
    )  # fmt: skip
    parser.add_argument(
        "--machines", nargs="+", type=_machine, metavar="NAME",
        default=[load_machine(name) for name in MACHINES],
        help=f"see below (default: {' '.join(MACHINES)})",
    )  # fmt: skip
    parser.add_argument(
        "--planners", nargs="+", type=_planner, metavar="NAME", default=list(PLANNERS),
        help=f"see below (default: {' '.join(PLANNERS)})",
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


def _machine(name: str) -> Machine:
    try:
        return load_machine(name)
    except MachineError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(options: argparse.Namespace) -> None:
    """Raises ReproductionError and CliError."""
    for path in (options.json, options.layers):
        if path is not None:
            check_writable(path)
    terminal = open_terminal()
    brute_force: BruteForce | None = None
    missing: str | None = None
    try:
        brute_force = load_brute_force()
    except BruteForceError as error:
        missing = str(error)
    models, machines, planners = (
        list(dict.fromkeys(chosen))
        for chosen in (options.models, options.machines, options.planners)
    )
    twice = [name for name, count in Counter(m.name for m in machines).items() if count > 1]
    if twice:
        raise CliError(f"two different machines are called {twice[0]!r}; rows would be mixed up")
    with terminal.steps() as steps:
        study = run_study(models, machines, planners, brute_force, steps)
    if options.json is not None:
        write_json(options.json, [asdict(row) for row in study.rows])
    if options.layers is not None:
        write_json(options.layers, [asdict(row) for row in study.layers])
    print_study(terminal.out, study, missing)


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    try:
        run(options)
    except (ReproductionError, CliError) as error:
        print(f"bench_planning: error: {error}", file=sys.stderr)
        return FAILED
    except ModuleNotFoundError as error:
        if error.name not in ("tvm", "onnx"):
            raise
        print(
            f"bench_planning: error: this needs {error.name}: pip install '.[relay]'",
            file=sys.stderr,
        )
        return FAILED
    except KeyboardInterrupt:
        print("bench_planning: interrupted", file=sys.stderr)
        return INTERRUPTED
    return DONE


if __name__ == "__main__":
    sys.exit(main())
