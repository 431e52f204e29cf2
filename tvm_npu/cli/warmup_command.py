"""``tvm-npu warmup``: compiles planner and simulators, so that nobody waits for it later."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm_npu.cli.arguments import Names, add_limits_argument
from tvm_npu.cli.errors import CliError
from tvm_npu.cli.terminal import Terminal
from tvm_npu.sim.machine_parts import ELEMENT_BYTES

if TYPE_CHECKING:
    from tvm_npu.sim.description import MachineDescription

DESCRIPTION = """\
The inner loops of planners and simulators become machine code when they are first used, and are
kept on disk. This makes them now, by a small network on one machine of each kind, or on those that
are named. What is there already is left alone.
"""
EXAMPLES = """\
examples:
  tvm-npu warmup
  tvm-npu warmup setup-a zynq-7020 --precision int8
  tvm-npu warmup nmp-4x8 --planner tso
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "machines", nargs="*", metavar="NAME|FILE",
        help="machines or machine files (default: the first machine of every kind)",
    )  # fmt: skip
    parser.add_argument(
        "--planner", choices=Names(_planner_names), metavar="NAME",
        help="see 'tvm-npu planners' (default: the planner of 'tvm-npu compile')",
    )  # fmt: skip
    parser.add_argument(
        "--precision", choices=tuple(ELEMENT_BYTES), help="default: the machine's own"
    )
    add_limits_argument(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    from tvm_npu.sim.machine_file import load_machine

    machines = [load_machine(name) for name in args.machines or first_of_each_kind()]
    if args.planner is not None:
        _check_planner(args.planner, machines)
    with terminal.steps(len(machines)) as steps:
        steps.begin("importing the compiler")
        from tvm_npu.codegen.plan import DEFAULT_PLANNER
        from tvm_npu.sim.making_code import machine_code_seconds
        from tvm_npu.warmup import warm_up

        planner = args.planner or DEFAULT_PLANNER
        for machine in machines:
            steps.begin(f"{machine.name}: planner {planner}, simulator")
            before = machine_code_seconds()
            warm_up(machine, planner, args.precision, args.limits)
            spent = machine_code_seconds() - before
            terminal.out.print(f"{machine.name}: {spent:.1f} s", soft_wrap=True)
            steps.done()
    return 0


def _check_planner(planner: str, machines: Sequence[MachineDescription]) -> None:
    """Raises CliError where it does not plan one of ``machines``."""
    from tvm_npu.codegen.plan import planner_fault

    for machine in machines:
        fault = planner_fault(planner, machine)
        if fault is not None:
            raise CliError(fault)


def first_of_each_kind() -> list[str]:
    """The first built-in machine of every kind that code is generated for."""
    from tvm_npu.codegen.backends import backend_names
    from tvm_npu.sim.machine_file import load_machine, machine_names

    first: dict[str, str] = {}
    for name in machine_names():
        first.setdefault(load_machine(name).isa, name)
    return [first[isa] for isa in backend_names() if isa in first]


def _planner_names() -> tuple[str, ...]:
    from tvm_npu.codegen.plan import planner_names

    return planner_names()
