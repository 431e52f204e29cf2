"""Table I of the TSO paper, cell by cell, on the simulator."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from studies.tso.cells import Cell
from studies.tso.command import check_outputs, exit_code
from studies.tso.drawing import FORMATS
from studies.tso.measure import Breakdown, LayerMeasurement, measure
from studies.tso.networks import Network, prepare
from studies.tso.strategy import DENSE_PLANNER, ForConvolutions
from studies.tso.tables import print_reproduction
from studies.tso.tso_plot import plot
from studies.tso.tso_published import COLUMNS, MACHINE, TITLES, Column, published_us
from tvm_npu.cli.files import write_bytes, write_json
from tvm_npu.cli.terminal import Steps, open_terminal
from tvm_npu.sim.machine_parts import Precision
from tvm_npu.sim.nmp.machine import load_nmp_machine

PRECISION: Precision = "int16"
NAMES = {name.lower(): column for column in COLUMNS for name in (column.head, column.planner)}
_NAMED = "\n".join(f"  {column.head:10}{column.planner}" for column in COLUMNS)
EPILOG = f"""\
columns by their heads in Table I or by planner:
{_NAMED}
A strategy is about convolutions: {DENSE_PLANNER} plans fully connected layers in every column.
The paper's YOLO row is left out: the structure of that network is not published.

exit codes: 0 done; 1 values differ or a file cannot be written; 2 the command line is wrong
"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reproduce_tso",
        description="Table I of the TSO paper: whole networks under every strategy, simulated on "
        f"{MACHINE} with {PRECISION}, beside the published times. No option tunes anything.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the cells as JSON")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE",
        help=f"draw them ({', '.join('.' + one for one in FORMATS)}); needs matplotlib",
    )  # fmt: skip
    parser.add_argument(
        "--models", nargs="+", type=_model, metavar="NAME", default=list(TITLES),
        help=f"of: {', '.join(TITLES)} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--columns", nargs="+", type=_column, metavar="NAME", default=list(COLUMNS),
        help="see below (default: all)",
    )  # fmt: skip
    return parser


def _model(name: str) -> str:
    if name not in TITLES:
        raise argparse.ArgumentTypeError(f"unknown model {name!r}; known: {', '.join(TITLES)}")
    return name


def _column(name: str) -> Column:
    column = NAMES.get(name.lower())
    if column is None:
        known = ", ".join(repr(column.head) for column in COLUMNS)
        raise argparse.ArgumentTypeError(f"unknown column {name!r}; known: {known}")
    return column


@dataclass(frozen=True)
class Reproduction:
    """What was measured; breakdowns by model and column head, layers of all cells."""

    networks: list[Network] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    breakdowns: dict[tuple[str, str], Breakdown] = field(default_factory=dict)
    layers: list[LayerMeasurement] = field(default_factory=list)


def reproduce(models: Sequence[str], columns: Sequence[Column], steps: Steps) -> Reproduction:
    """Raises ReproductionError when a value differs from the reference's."""
    machine = load_nmp_machine(MACHINE)
    found = Reproduction()
    steps.expect(len(models) * (1 + len(columns)))
    for model in models:
        steps.begin(f"{model}: quantizing")
        network = prepare(model, machine, PRECISION)
        found.networks.append(network)
        steps.done()
        for column in columns:
            steps.begin(f"{model}: {column.head}")
            measured = measure(network, machine, ForConvolutions(column.planner))
            paper_us = published_us(model, column)
            found.cells.append(
                Cell(model, column.head, paper_us, measured.time_us, measured.predicted_us)
            )
            found.breakdowns[model, column.head] = measured.breakdown
            found.layers.extend(measured.layers)
            steps.done()
    return found


def run(options: argparse.Namespace) -> None:
    """Raises ReproductionError and CliError."""
    check_outputs([options.json], options.plot)
    terminal = open_terminal()
    models = [model for model in TITLES if model in options.models]
    columns = [column for column in COLUMNS if column in options.columns]
    with terminal.steps() as steps:
        found = reproduce(models, columns, steps)
    if options.json is not None:
        write_json(options.json, [asdict(cell) for cell in found.cells])
    if options.plot is not None:
        suffix = options.plot.suffix[1:].lower()
        write_bytes(options.plot, plot(found.cells, found.breakdowns, suffix))
    print_reproduction(terminal.out, found.networks, found.cells, found.breakdowns, found.layers)


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    return exit_code("reproduce_tso", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
