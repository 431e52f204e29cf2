"""The tables and figures of the Snowflake compiler's paper, on the simulator."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console

from studies.harness.errors import StudyError
from studies.harness.options import add_several
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.shared.networks import NetworkFacts, facts_of
from studies.snowflake.measuring import Measured, Missing
from studies.snowflake.plots import plot
from studies.snowflake.published import NETWORKS
from studies.snowflake.rows import Found, rows_of, wrong_rows
from studies.snowflake.tables import print_found
from studies.snowflake.work import (
    CELLS,
    MACHINES,
    NETWORK_MACHINE,
    TABLES,
    cases,
    computed,
    network,
)

QUICK_MODELS, QUICK_MACHINES = ("alexnet_owt",), ("snowflake-1cu", NETWORK_MACHINE)
QUANTIZING = "quantizing"
EPILOG = """\
tables:
  3        three layers of AlexNet on one compute unit
  figure5  the networks on 1, 2 and 4 clusters, and what binds them
  2        modes and lengths of instructions
  figure6  reuse of kernels against reuse of maps
  figure7  roofline with the convolutions of ResNet-18
  zc706    the accelerator's own publication
  passes   each pass of the compiler left out, one at a time; two layers before and after
  exact    the planner `exact` against the paper's own
  1        LSTM and GRU
Times leave out linear layers, as the paper's do. Efficiency counts MACs that touch no padding. What
no code is generated for is left out, and said.
"""


class SnowflakeStudy(Study[Found]):
    name = "reproduce_snowflake"
    texts = Texts(
        "The tables and figures of the Snowflake compiler's paper: layers and whole networks,\n"
        "compiled and simulated, values and cycles, beside what is published.",
        EPILOG,
    )
    draws = True

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_several(parser, "--tables", "table", TABLES)
        add_several(parser, "--models", "model", (*NETWORKS, *CELLS))
        add_several(parser, "--machines", "machine", MACHINES)
        parser.add_argument(
            "--quick", action="store_true",
            help=f"{', '.join(QUICK_MODELS)} and single layers on {', '.join(QUICK_MACHINES)}, "
            "unless others are named",
        )  # fmt: skip
        parser.set_defaults(models=None, machines=None)

    def parts(self, options: argparse.Namespace) -> list[Part[Any]]:
        quick = options.quick
        models = options.models or (QUICK_MODELS if quick else (*NETWORKS, *CELLS))
        machines = options.machines or (QUICK_MACHINES if quick else MACHINES)
        wanted = cases(
            _in_order(TABLES, options.tables), _in_order(NETWORKS, models),
            _in_order(MACHINES, machines), _in_order(CELLS, models),
        )  # fmt: skip
        parts: list[Part[Any]] = []
        begun = set()
        for case in wanted:
            if case.subject in NETWORKS and case.subject not in begun:
                begun.add(case.subject)
                parts.append(
                    Part((case.subject, QUANTIZING), NetworkFacts, partial(_facts, case.subject))
                )
            parts.append(Part(case.key, Measured | Missing, partial(computed, case)))
        if not parts:
            raise StudyError("nothing to do: none of the tables has these models on these machines")
        return parts

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> Found:
        facts = {key[0]: one for key, one in found.items() if isinstance(one, NetworkFacts)}
        measured = {key: one for key, one in found.items() if not isinstance(one, NetworkFacts)}
        tables = tuple(_in_order(TABLES, options.tables))
        return Found(tables, measured, facts)  # type: ignore[arg-type]

    def rows(self, result: Found) -> Mapping[str, Sequence[Any]]:
        return {"json": [row.plain() for row in rows_of(result)]}

    def draw(self, result: Found, file_format: str) -> bytes:
        return plot(result, file_format)

    def show(self, console: Console, result: Found) -> None:
        print_found(console, result)

    def check(self, result: Found) -> None:
        """Raises StudyError for bits that are off and for races."""
        wrong = wrong_rows(result.measured)
        if wrong:
            raise StudyError(f"{'; '.join(wrong)}; the limit is 0")


STUDY = SnowflakeStudy()


def _in_order(known: Any, chosen: Sequence[str]) -> list[str]:
    return [one for one in known if one in chosen]


def _facts(model: str, bench: Bench) -> NetworkFacts:
    return facts_of(network(model))
