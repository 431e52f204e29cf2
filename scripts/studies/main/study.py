"""The main benchmark: every model through relay.build on simulated machines, beside stock TVM."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from studies.harness.errors import StudyError
from studies.harness.options import add_machines, check_distinct_names
from studies.harness.processes import module_command, module_environment
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.main.tables import COLUMNS, SOURCE, print_rows
from tvm_npu.cli.arguments import positive
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.nmp.machine import NmpMachine

QUANTIZED = "quantized"
GROUPS = ("pretrained", "light", "built", "modern", QUANTIZED)
STOCK = "stock"
MACHINES = ("nmp-4x8",)
SCALE_MACHINES = ("nmp-4x8-scale", "nmp-4x8-int8")
"""Those of quantized models where no machine is given: one with their scales, one with Q-points."""
Figures = dict[str, Any]


class MainStudy(Study[list[Figures]]):
    name = "bench_main"
    texts = Texts(
        "Every model through relay.build on simulated machines, beside stock TVM for the CPU;\n"
        "each measurement in a process of its own.",
        "Pretrained models are left out where there is no folder of them. A measurement that\n"
        "fails, or a bit that is off, makes the exit code 1.",
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--models", nargs="+", metavar="NAME", help="models by name (default: all)"
        )
        parser.add_argument("--groups", nargs="+", choices=GROUPS)
        add_machines(parser, MACHINES, "--machine")
        parser.add_argument(
            "--precision", nargs="+", choices=["int16", "int8", SOURCE],
            help="(default: that of each machine, int16 on nmp-4x8; quantized models have their "
            f"own, {SOURCE!r}, and machines {' '.join(SCALE_MACHINES)})",
        )  # fmt: skip
        parser.add_argument(
            "--tles", type=positive, metavar="N",
            help="another number of TLEs than the machine's (of NMPs)",
        )  # fmt: skip
        parser.add_argument("--small-tiles", action="store_true", help="force small tiles")
        parser.add_argument("--no-stock", action="store_true", help="leave stock TVM out")

    def parts(self, options: argparse.Namespace) -> list[Part[Figures]]:
        from studies.main.quantized import sources
        from studies.shared.bench_models import cases, chosen_names

        quantized = [name for name in sources() if name in (options.models or sources())]
        others = [name for name in options.models or () if name not in quantized]
        wanted = chosen_names(others)
        machines = [_with_tles(machine, options.tles) for machine in options.machines]
        check_distinct_names(machines)
        parts: list[Part[Figures]] = []
        precisions = [one for one in options.precision or () if one != SOURCE]
        float_models = [] if options.precision and not precisions else list(cases().values())
        for case in float_models:
            if options.models and case.name not in wanted:
                continue
            if options.groups and case.group not in options.groups:
                continue
            if not options.no_stock:
                stock = partial(_measured, [case.name, STOCK], None)
                parts.append(Part((case.name, STOCK), Figures, stock))
            for machine in machines:
                for precision in precisions or [machine.default_precision]:
                    arguments = [case.name, precision]
                    arguments += ["--small-tiles"] if options.small_tiles else []
                    parts.append(
                        Part(
                            (case.name, machine.name, precision), Figures,
                            partial(_measured, arguments, machine),
                        )
                    )  # fmt: skip
        if SOURCE in (options.precision or [SOURCE]) and QUANTIZED in (
            options.groups or [QUANTIZED]
        ):
            parts += _quantized_parts(quantized, machines)
        return parts

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> list[Figures]:
        empty = dict.fromkeys(key for key, _, _ in COLUMNS)
        rows = []
        for (model, *how), figures in found.items():
            if how != [STOCK]:
                machine, precision = how
                named = {"model": model, "machine": machine, "precision": precision}
                rows.append({**named, **empty, **found.get((model, STOCK), {}), **figures})
        return rows

    def rows(self, result: list[Figures]) -> Mapping[str, Sequence[Any]]:
        return {"json": result}

    def show(self, console: Console, result: list[Figures]) -> None:
        from tvm_npu.models.shared import find_shared_models

        if find_shared_models() is None:
            console.print("No folder of pretrained models: their rows are left out.")
        print_rows(console, result)

    def check(self, result: list[Figures]) -> None:
        failed = sum(bool(row.get("error")) for row in result)
        off = sum(bool(row.get("bit_mismatches")) for row in result)
        if failed or off:
            raise StudyError(f"{failed} of {len(result)} rows failed, {off} have bits off")


STUDY = MainStudy()


def _quantized_parts(
    names: Sequence[str], machines: Sequence[MachineDescription]
) -> list[Part[Figures]]:
    if tuple(machine.name for machine in machines) == MACHINES:
        machines = [load_machine(name) for name in SCALE_MACHINES]
    return [
        Part((name, one.name, SOURCE), Figures, partial(_measured, [name, SOURCE], one))
        for name in names
        for one in machines
    ]


def _with_tles(machine: MachineDescription, tles: int | None) -> MachineDescription:
    if tles is None:
        return machine
    if not isinstance(machine, NmpMachine):
        raise StudyError(f"--tles is for NMPs; machine {machine.name!r} has no TLEs")
    return machine.with_cores(tles)


def _measured(arguments: list[str], machine: MachineDescription | None, bench: Bench) -> Figures:
    """Runs a worker; a failed one gives {"error": its last line}."""
    result = bench.scratch / "result.json"
    result.unlink(missing_ok=True)
    if machine is not None:
        arguments = [*arguments, "--machine", str(_machine_file(machine, bench.scratch))]
    command = module_command(
        "studies.main.worker", *arguments, str(bench.scratch), str(result)
    )  # fmt: skip
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
        env=module_environment(),
    )  # fmt: skip
    if done.returncode or not result.exists():
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"error": lines[-1]}
    return dict(json.loads(result.read_text()))


def _machine_file(machine: MachineDescription, folder: Path) -> Path:
    path = folder / "machine.json"
    path.write_text(machine.model_dump_json(exclude_none=True))
    return path
