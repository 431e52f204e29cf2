"""``tvm-npu machines``: the built-in machines, or all keys of one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tvm_npu.cli.files import check_outputs, write_json
from tvm_npu.cli.tables import Column, print_tables
from tvm_npu.cli.terminal import Terminal
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.kinds import outside_problems
from tvm_npu.sim.machine_file import load_machine, machine_names, machine_toml
from tvm_npu.sim.machine_parts import ELEMENT_BYTES

DESCRIPTION = """\
Without NAME: a table of the machines that come with the package. With NAME, or a machine file:
all its keys, checked, as TOML that is a machine file.
"""
EXAMPLES = """\
examples:
  tvm-npu machines
  tvm-npu machines nmp-4x8
  tvm-npu machines nmp-4x8 > my-npu.toml
  tvm-npu machines my-npu.toml --json my-npu.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME|FILE")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the same as JSON")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    check_outputs(args, "json")
    content: Any
    if args.name is None:
        machines = [load_machine(name) for name in machine_names()]
        content = {"machines": [machine.model_dump() for machine in machines]}
        _print_table(machines, terminal)
        for problem in outside_problems():
            terminal.note(problem)
    else:
        content = load_machine(args.name).model_dump()
        terminal.out.print(machine_toml(content), soft_wrap=True, end="")
    if args.json is not None:
        write_json(args.json, content)
    return 0


def _print_table(machines: list[MachineDescription], terminal: Terminal) -> None:
    columns = [
        Column("name", tuple(machine.name for machine in machines), key=True),
        Column("isa", tuple(machine.isa for machine in machines), key=True),
        Column("cores", tuple(str(machine.core_count) for machine in machines)),
        Column("MHz", tuple(f"{machine.frequency_mhz:g}" for machine in machines)),
        *(
            Column(
                f"{precision}\nMACs/cycle",
                tuple(f"{m.core_count * m.macs_per_cycle(size):,g}" for m in machines),
            )
            for precision, size in ELEMENT_BYTES.items()
        ),
        Column("description", tuple(machine.description for machine in machines), prose=True),
    ]
    print_tables(columns, terminal.out)
