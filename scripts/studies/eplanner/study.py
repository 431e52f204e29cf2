"""The evaluation of the e-PlaNNer thesis, cell by cell, on the simulator."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console

from studies.eplanner.measuring import (
    PLANNERS,
    Combination,
    Measured,
    Simulations,
    measure,
    measured_of,
)
from studies.eplanner.plots import plot
from studies.eplanner.published import MODELS, SETUPS
from studies.eplanner.tables import print_measured
from studies.harness.options import add_several
from studies.harness.study import Bench, Key, Part, Study, Texts

EPILOG = """\
Every distinct layer is compiled under every plan, simulated with values and timing, and compared
with the reference bit for bit. The JSON file is a list of flat objects, one for each model, set-up
and planner: offchip_bytes, simulated_us, predicted_us, plan_s, space, space_kept and others.
"""


class EplannerStudy(Study[Measured]):
    name = "reproduce_eplanner"
    texts = Texts(
        "The e-PlaNNer thesis, chapter 8: five networks on the set-ups A to D under e-PlaNNer,\n"
        "the planners that it compares with and our exact ones, simulated, beside the\n"
        "published figures. No option tunes anything.",
        EPILOG,
        {"json": "write the cells as JSON"},
    )
    draws = True

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_several(parser, "--models", "model", MODELS)
        add_several(parser, "--setups", "set-up", SETUPS)
        add_several(parser, "--planners", "planner", PLANNERS)

    def parts(self, options: argparse.Namespace) -> list[Part[Combination]]:
        simulations = Simulations()
        return [
            Part(
                (model, f"set-up {setup}", name), Combination,
                partial(_measured, model, setup, name, simulations),
            )
            for model in MODELS if model in options.models
            for setup in SETUPS if setup in options.setups
            for name in PLANNERS if name in options.planners
        ]  # fmt: skip

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> Measured:
        return measured_of(found.values())

    def rows(self, result: Measured) -> Mapping[str, Sequence[Any]]:
        return {"json": result.rows}

    def draw(self, result: Measured, file_format: str) -> bytes:
        return plot(result.rows, file_format)

    def show(self, console: Console, result: Measured) -> None:
        print_measured(console, result)


STUDY = EplannerStudy()


def _measured(
    model: str, setup: str, name: str, simulations: Simulations, bench: Bench
) -> Combination:
    return measure(model, setup, name, simulations)
