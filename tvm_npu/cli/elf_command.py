"""``tvm-npu run-elf``: a bare-metal RV32IM program on one simulated core."""

from __future__ import annotations

import argparse
from pathlib import Path

from tvm_npu.cli.arguments import positive
from tvm_npu.cli.errors import CliError
from tvm_npu.cli.terminal import Terminal
from tvm_npu.options import DEFAULT_MACHINE
from tvm_npu.sim.kinds import RunsElf, machine_kind, usable_kinds
from tvm_npu.sim.machine_file import load_machine

DESCRIPTION = """\
Runs a statically linked RV32IM executable on core 0 until it exits by ecall with a7 = 93, and
prints its exit code, cycles and instructions. Link it to the machine's DRAM base address
('tvm-npu machines NAME' shows it). The program's exit code is a result, not an error.
"""
EXAMPLES = """\
examples:
  riscv64-unknown-elf-gcc -march=rv32im -mabi=ilp32 -nostdlib -T program.ld main.c -o main.elf
  tvm-npu run-elf main.elf
  tvm-npu run-elf main.elf --machine my-npu.toml --budget 1000000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE.elf")
    parser.add_argument(
        "--machine", default=DEFAULT_MACHINE, metavar="FILE|NAME",
        help=f"built-in machine or machine file (default: {DEFAULT_MACHINE})",
    )  # fmt: skip
    parser.add_argument(
        "--budget", type=positive, default=100_000_000, metavar="N",
        help="stop a program that runs more instructions than this (default: 100,000,000)",
    )  # fmt: skip


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    machine = load_machine(args.machine)
    kind = machine_kind(machine.isa)
    if not isinstance(kind, RunsElf):
        able = [isa for isa, other in usable_kinds().items() if isinstance(other, RunsElf)]
        raise CliError(
            f"machine {machine.name!r} is of isa {machine.isa!r}; executables run on machines of "
            f"{', '.join(map(repr, able))}"
        )
    with terminal.steps() as steps, terminal.simulating():
        steps.begin("simulating: the first run ever compiles the simulator")
        code, statistics = kind.run_elf(args.file, machine, budget=args.budget)
    terminal.out.print(
        f"exit code {code}, {statistics.cycles:,.0f} cycles ({statistics.time_us:,.1f} us at "
        f"{machine.frequency_mhz:g} MHz), {statistics.instructions:,} instructions",
        soft_wrap=True,
    )
    return 0
