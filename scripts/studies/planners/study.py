"""Every planner on every machine for the networks of the main benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console

from studies.harness.errors import StudyError
from studies.harness.options import add_several
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.planners.measuring import Outcome, measure
from studies.planners.tables import print_errors, print_rows
from studies.shared.bench_models import cases, chosen_names
from tvm_npu.codegen.plan import planner_names
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_file import load_machine, machine_names

PREFERRED = ("resnet50", "resnet8_cifar10", "mobilenet_v2_1.0_224", "ultraface_rfb320")
QUICK_MODELS = ("digits_lenet", "light-squeezenet")
QUICK_MACHINES = ("nmp-4x8", "setup-a")


class PlannersStudy(Study[list[Outcome]]):
    name = "bench_planners"
    texts = Texts(
        "Simulates networks under every planner on every machine, each at its default\n"
        "precision, and compares every output with the reference bit for bit.",
        "A combination that does not run, or has a bit off, makes the exit code 1.",
        {
            "json": "write one object a combination",
            "layers": "write one object a layer, with predicted and simulated cycles",
        },
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--models", nargs="+", metavar="NAME",
            help=f"of scripts/bench_main (default: {', '.join(PREFERRED)}, as far as they are "
            "there)",
        )  # fmt: skip
        add_several(parser, "--machines", "machine", machine_names())
        add_several(parser, "--planners", "planner", planner_names())
        parser.add_argument(
            "--quick", action="store_true",
            help=f"{', '.join(QUICK_MODELS)} on {', '.join(QUICK_MACHINES)}, unless others are "
            "named",
        )  # fmt: skip
        parser.set_defaults(machines=None)

    def parts(self, options: argparse.Namespace) -> list[Part[Outcome]]:
        wanted = QUICK_MODELS if options.quick else PREFERRED
        models = chosen_names(options.models) or [name for name in wanted if name in cases()]
        names = options.machines or (QUICK_MACHINES if options.quick else machine_names())
        machines = [load_machine(name) for name in names]
        return [
            Part((model, machine.name, name), Outcome, partial(_measured, model, machine, name))
            for model in models
            for machine in machines
            for name in options.planners
            if name in planner_names(machine)
        ]

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> list[Outcome]:
        return list(found.values())

    def rows(self, result: list[Outcome]) -> Mapping[str, Sequence[Any]]:
        layers = [layer for one in result for layer in one.layers]
        return {"json": [one.row for one in result], "layers": layers}

    def show(self, console: Console, result: list[Outcome]) -> None:
        print_rows(console, [one.row for one in result])
        print_errors(console, [layer for one in result for layer in one.layers])

    def check(self, result: list[Outcome]) -> None:
        """Raises StudyError unless all ran to the bit."""
        failed = sum(bool(one.row.error) for one in result)
        off = sum(bool(one.row.bit_mismatches) for one in result)
        if failed or off:
            raise StudyError(
                f"{failed} of {len(result)} combinations did not run, {off} have bits off; the "
                "limit is 0"
            )


STUDY = PlannersStudy()


def _measured(model: str, machine: MachineDescription, name: str, bench: Bench) -> Outcome:
    return measure(model, machine, name)
