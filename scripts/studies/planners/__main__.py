"""Every planner on every machine for the networks of the main benchmark."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from studies.main.cases import cases
from studies.planners.study import Row, run_study
from studies.planners.tables import print_rows
from studies.tso.command import exit_code
from studies.tso.errors import ReproductionError
from tvm_npu.cli.files import check_writable, write_json
from tvm_npu.cli.terminal import open_terminal
from tvm_npu.codegen.plan import planner_names
from tvm_npu.sim.machine_file import load_machine, machine_names

PREFERRED = ("resnet50", "resnet8_cifar10", "mobilenet_v2_1.0_224", "ultraface_rfb320")
QUICK_MODELS = ("digits_lenet", "light-squeezenet")
QUICK_MACHINES = ("nmp-4x8", "setup-a")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench_planners",
        description="Simulates networks under every planner on every machine, each at its default "
        "precision, and compares every output with the reference bit for bit.",
        epilog="exit codes: 0 all ran, no bit off; 1 something did not; 2 wrong command line",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write one object a combination")
    parser.add_argument(
        "--models", nargs="+", metavar="NAME",
        help=f"of scripts/bench_main (default: {', '.join(PREFERRED)}, as far as they are there)",
    )  # fmt: skip
    parser.add_argument(
        "--machines", nargs="+", choices=machine_names(), metavar="NAME",
        help=f"of: {', '.join(machine_names())} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--planners", nargs="+", choices=planner_names(), metavar="NAME",
        default=list(planner_names()), help=f"of: {', '.join(planner_names())} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--quick", action="store_true",
        help=f"{', '.join(QUICK_MODELS)} on {', '.join(QUICK_MACHINES)}, unless named otherwise",
    )  # fmt: skip
    return parser


def run(options: argparse.Namespace) -> None:
    """Raises ReproductionError, also where a combination did not run or a bit is off; CliError."""
    if options.json is not None:
        check_writable(options.json)
    known = cases()
    models = options.models or [
        name for name in (QUICK_MODELS if options.quick else PREFERRED) if name in known
    ]
    for name in models:
        if name not in known:
            raise ReproductionError(f"unknown model {name!r}; known: {', '.join(known)}")
    names = options.machines or (QUICK_MACHINES if options.quick else machine_names())
    machines = [load_machine(name) for name in names]
    terminal = open_terminal()
    with terminal.steps() as steps, terminal.simulating():
        rows = run_study(models, machines, options.planners, steps)
    if options.json is not None:
        write_json(options.json, [asdict(row) for row in rows])
    print_rows(terminal.out, rows)
    check(rows)


def check(rows: Sequence[Row]) -> None:
    """Raises ReproductionError unless all ran to the bit."""
    failed = sum(bool(row.error) for row in rows)
    off = sum(bool(row.bit_mismatches) for row in rows)
    if failed or off:
        raise ReproductionError(
            f"{failed} of {len(rows)} combinations did not run, {off} have bits off; the limit is 0"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    return exit_code("bench_planners", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
