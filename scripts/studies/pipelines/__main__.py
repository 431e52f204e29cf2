"""Pipe-Search and Shisha on simulated execution places, and our own search beside them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from studies.pipelines.pipe_tables import pipe_lines, pipe_tables
from studies.pipelines.plots import plot
from studies.pipelines.shisha_tables import shisha_lines, shisha_tables
from studies.pipelines.study import MODELS, run_study
from studies.tso.command import check_outputs, exit_code
from studies.tso.drawing import FORMATS
from tvm_npu.cli.files import write_bytes, write_json
from tvm_npu.cli.terminal import open_terminal

EPILOG = """\
The papers measured a Jetson TX2 and gem5; here a roofline model of each place stands for both (see
docs/pipelines.md). Every optimum is proven: by enumeration, and where that does not end by dynamic
programming, which is checked against enumeration wherever both end.

exit codes: 0 done; 1 a file cannot be written, or the two proofs differ;
            2 the command line is wrong
"""
MOST_SEEDS = 100


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reproduce_pipelines",
        description="Searches for pipeline stages on the networks and platforms of two papers:\n"
        "throughput beside the optimum, trials and convergence beside the published ones.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write a row a network, platform and search"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE",
        help=f"draw them ({', '.join('.' + one for one in FORMATS)}); needs matplotlib",
    )  # fmt: skip
    parser.add_argument(
        "--models", nargs="+", type=_model, metavar="NAME", default=list(MODELS),
        help=f"of: {', '.join(MODELS)} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=_seeds, metavar="N", default=5,
        help="runs of each search that draws random numbers, and of guided under noise "
        f"(1 to {MOST_SEEDS}, default: 5)",
    )  # fmt: skip
    return parser


def _model(name: str) -> str:
    if name not in MODELS:
        raise argparse.ArgumentTypeError(f"unknown model {name!r}; known: {', '.join(MODELS)}")
    return name


def _seeds(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= MOST_SEEDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST_SEEDS}")
    return int(text)


def run(options: argparse.Namespace) -> None:
    """Raises ReproductionError and CliError."""
    check_outputs([options.json], options.plot)
    terminal = open_terminal()
    with terminal.steps() as steps:
        study = run_study(options.models, options.seeds, steps)
    if options.json is not None:
        write_json(options.json, [asdict(row) for row in study.rows])
    if options.plot is not None:
        write_bytes(options.plot, plot(study, options.plot.suffix[1:].lower()))
    console = terminal.out
    for table in (*shisha_tables(study, console.width), *pipe_tables(study, console.width)):
        console.print(table)
        console.print()
    for line in (*shisha_lines(study), *pipe_lines(study)):
        console.print(line, soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    return exit_code("reproduce_pipelines", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
