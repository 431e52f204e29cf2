"""Table I of the TSO paper, cell by cell, on the simulator."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from rich.console import Console

from studies.harness.options import Distinct, add_several
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.shared.networks import Network, NetworkFacts, facts_of, prepare
from studies.shared.simulation import Breakdown, LayerMeasurement, Measurement, measure
from studies.shared.titles import TITLES
from studies.tso.cells import Cell
from studies.tso.plots import plot
from studies.tso.published import COLUMNS, MACHINE, Column, published_us
from studies.tso.strategy import DENSE_PLANNER, ForConvolutions
from studies.tso.tables import print_reproduction
from tvm_npu.sim.machine_parts import Precision
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

PRECISION: Precision = "int16"
NAMES = {name.lower(): column for column in COLUMNS for name in (column.head, column.planner)}
_NAMED = "\n".join(f"  {column.head:10}{column.planner}" for column in COLUMNS)
EPILOG = f"""\
columns by their heads in Table I or by planner:
{_NAMED}
A strategy is about convolutions: {DENSE_PLANNER} plans fully connected layers in every column.
The paper's YOLO row is left out: the structure of that network is not published.
"""
QUANTIZING = "quantizing"


@dataclass(frozen=True)
class Reproduction:
    """What was measured; breakdowns by model and column head, layers of all cells."""

    networks: list[NetworkFacts]
    cells: list[Cell]
    breakdowns: dict[tuple[str, str], Breakdown]
    layers: list[LayerMeasurement]


class TsoStudy(Study[Reproduction]):
    name = "reproduce_tso"
    texts = Texts(
        "Table I of the TSO paper: whole networks under every strategy, simulated on\n"
        f"{MACHINE} with {PRECISION}, beside the published times. No option tunes anything.",
        EPILOG,
        {"json": "write the cells as JSON"},
    )
    draws = True

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_several(parser, "--models", "model", tuple(TITLES))
        parser.add_argument(
            "--columns", nargs="+", type=_column, action=Distinct, metavar="NAME",
            default=list(COLUMNS), help="see below (default: all)",
        )  # fmt: skip

    def parts(self, options: argparse.Namespace) -> list[Part[Any]]:
        machine = load_nmp_machine(MACHINE)
        parts: list[Part[Any]] = []
        for model in _in_order(TITLES, options.models):
            parts.append(Part((model, QUANTIZING), NetworkFacts, partial(_facts, model, machine)))
            parts += [
                Part((model, column.head), Measurement, partial(_measured, model, column, machine))
                for column in _in_order(COLUMNS, options.columns)
            ]
        return parts

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> Reproduction:
        heads = {column.head: column for column in COLUMNS}
        measured = {(model, what): value for (model, what), value in found.items() if what in heads}
        return Reproduction(
            [value for (_, what), value in found.items() if what == QUANTIZING],
            [
                Cell(model, head, published_us(model, heads[head]), one.time_us, one.predicted_us)
                for (model, head), one in measured.items()
            ],
            {key: one.breakdown for key, one in measured.items()},
            [layer for one in measured.values() for layer in one.layers],
        )

    def rows(self, result: Reproduction) -> Mapping[str, Sequence[Any]]:
        return {"json": result.cells}

    def draw(self, result: Reproduction, file_format: str) -> bytes:
        return plot(result.cells, result.breakdowns, file_format)

    def show(self, console: Console, result: Reproduction) -> None:
        print_reproduction(console, result.networks, result.cells, result.breakdowns, result.layers)


STUDY = TsoStudy()


def _column(name: str) -> Column:
    column = NAMES.get(name.lower())
    if column is None:
        known = ", ".join(repr(column.head) for column in COLUMNS)
        raise argparse.ArgumentTypeError(f"unknown column {name!r}; known: {known}")
    return column


def _in_order(known: Any, chosen: Sequence[Any]) -> list[Any]:
    return [one for one in known if one in chosen]


@lru_cache(maxsize=1)
def _network(model: str) -> Network:
    """Of the model that is at work: networks are large."""
    return prepare(model, load_nmp_machine(MACHINE), PRECISION)


def _facts(model: str, machine: NmpMachine, bench: Bench) -> NetworkFacts:
    return facts_of(_network(model))


def _measured(model: str, column: Column, machine: NmpMachine, bench: Bench) -> Measurement:
    """Raises StudyError when a value differs from the reference's."""
    return measure(_network(model), machine, ForConvolutions(column.planner))
