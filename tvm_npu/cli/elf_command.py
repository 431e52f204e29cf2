"""``tvm-npu run-elf``: bare-metal RV32IM programs on one simulated core."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tvm_npu.cli.arguments import add_limits_argument, positive
from tvm_npu.cli.errors import CliError
from tvm_npu.cli.files import check_outputs, write_json
from tvm_npu.cli.shown import shown, told_of
from tvm_npu.cli.terminal import Terminal
from tvm_npu.options import DEFAULT_MACHINE
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.errors import SimError
from tvm_npu.sim.kinds import ElfLeft, ElfObserver, ElfRun, RunsElf, machine_kind, usable_kinds
from tvm_npu.sim.limits import Limits
from tvm_npu.sim.machine_file import load_machine


def _start_folders() -> str:
    folders = (one.start_files for one in usable_kinds().values() if isinstance(one, RunsElf))
    return " ".join(map(str, folders))


DESCRIPTION = f"""\
Runs statically linked RV32IM executables, each on a core 0 of its own, until it exits by ecall with
a7 = 93, and prints exit code, cycles and instructions. Link to the machine's DRAM base address
('tvm-npu machines NAME' shows it). The exit code is a result, not an error, unless --exit-code.

A program begins at its entry with sp at the top of a stack of 1 MiB and all other registers 0. With
a7 = 64 ecall writes a2 bytes from a1 on to stdout (a0 = 1 or 2). Accesses that are not aligned
trap, and so do stores to segments that are not writable, loads from those that are not readable,
instructions outside of executable segments or overwritten, and all that touch the guard below the
stack. Linker script and start-up code are in
{_start_folders()}
"""
EXAMPLES = f"""\
examples:
  START={_start_folders()}
  riscv64-unknown-elf-gcc -march=rv32im -mabi=ilp32 -nostdlib -static -T $START/program.ld \\
      $START/start.S main.c -o main.elf
  tvm-npu run-elf main.elf
  tvm-npu run-elf main.elf --trace 20
  tvm-npu run-elf main.elf --machine my-npu.toml --budget 1000000
  tvm-npu run-elf one.elf two.elf --registers --dump 0x80000000:64 --json runs.json
"""
LINE_BYTES = 16
MOST_INSTRUCTIONS = 100_000_000
"""Unless --budget or --limits say."""
MOST_TRACED = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE.elf")
    parser.add_argument(
        "--machine", default=DEFAULT_MACHINE, metavar="FILE|NAME",
        help=f"built-in machine or machine file (default: {DEFAULT_MACHINE})",
    )  # fmt: skip
    parser.add_argument(
        "--budget", type=positive, metavar="N",
        help="stop a program that runs more instructions than this (default: "
        f"{MOST_INSTRUCTIONS:,}); of this and --limits instructions=N the smaller number holds",
    )  # fmt: skip
    add_limits_argument(parser)
    parser.add_argument("--registers", action="store_true", help="show the registers at the end")
    parser.add_argument(
        "--dump", type=_range, action="append", default=[], metavar="ADDR:LEN",
        help="show LEN bytes of memory from ADDR on at the end; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--trace", type=_traced, default=0, metavar="N",
        help=f"show the last N instructions, {MOST_TRACED:,} at most, and what they changed; "
        "takes a second run",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument(
        "--exit-code", action="store_true",
        help="end with the exit code of the last program, its low 8 bits, as shells take it",
    )  # fmt: skip


def _range(text: str) -> tuple[int, int]:
    try:
        address, size = (int(part, 0) for part in text.split(":"))
    except ValueError:
        address, size = -1, 0
    if not 0 <= address < 1 << 32 or not 1 <= size <= 1 << 32:
        raise argparse.ArgumentTypeError(f"{text!r} is not ADDRESS:LENGTH, as 0x80000000:64")
    return address, size


def _traced(text: str) -> int:
    count = positive(text)
    if count > MOST_TRACED:
        raise argparse.ArgumentTypeError(f"{count} instructions; at most {MOST_TRACED}")
    return count


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    check_outputs(args, "json")
    machine = load_machine(args.machine)
    kind = _kind(machine)
    limits: Limits = args.limits
    if args.budget is not None or limits.instructions is None:
        limits = limits.lowered(args.budget or MOST_INSTRUCTIONS)
    rows: list[dict[str, Any]] = []
    errors: list[SimError] = []
    for path in args.files:
        name = f"{shown(str(path))}: " if len(args.files) > 1 else ""
        seen = _Seen(terminal, args.trace, args.dump)
        try:
            with terminal.steps() as steps, terminal.simulating():
                steps.begin("simulating: the first run ever compiles the simulator")
                done = kind.run_elf(path, machine, limits, seen.observer)
            seen.leave(ElfLeft(done.statistics.instructions, done.registers, done.memory))
            _say(terminal, name + _ending(done, machine))
            rows.append({"file": str(path), **_ended(done)})
        except SimError as error:
            errors.append(error)
            if name:
                _say(terminal, name + told_of(path, error))
            rows.append({"file": str(path), "error": str(error)})
        terminal.write_lines(seen.lines(args.registers, args.dump))
        if args.json is not None:
            rows[-1].update(seen.row(args.dump))
    if args.json is not None:
        write_json(args.json, {"machine": machine.name, "programs": rows})
    if errors and len(rows) == 1:
        raise errors[0]
    if errors:
        raise CliError(f"{len(errors)} of {len(rows)} executables did not run to their end")
    return rows[-1]["exit_code"] & 0xFF if args.exit_code else 0


def _say(terminal: Terminal, text: str) -> None:
    terminal.out.print(text, soft_wrap=True, markup=False, highlight=True)


def _kind(machine: MachineDescription) -> RunsElf:
    kind = machine_kind(machine.isa)
    if isinstance(kind, RunsElf):
        return kind
    able = [isa for isa, other in usable_kinds().items() if isinstance(other, RunsElf)]
    raise CliError(
        f"machine {machine.name!r} is of isa {machine.isa!r}; executables run on machines of "
        f"{', '.join(map(repr, able))}"
    )


class _Seen:
    """Prints what a program writes, and its trace, and keeps both, with what it leaves behind."""

    def __init__(
        self, terminal: Terminal, traced: int, dumped: list[tuple[int, int]]
    ) -> None:
        self.terminal = terminal
        self.written = ""
        self.trace: list[str] = []
        self.left: ElfLeft | None = None
        self.observer = ElfObserver(self.write, self.show, traced, tuple(dumped), self.leave)

    def write(self, data: bytes) -> None:
        self.written = data.decode("utf-8", "replace")
        if data:
            self.terminal.write_lines([printable(self.written).removesuffix("\n")])

    def show(self, lines: list[str]) -> None:
        self.trace = lines
        self.terminal.write_lines(lines)

    def leave(self, left: ElfLeft) -> None:
        self.left = left

    def row(self, dumps: list[tuple[int, int]]) -> dict[str, Any]:
        """Empty for what has not run at all."""
        if self.left is None:
            return {}
        return {
            "instructions": self.left.instructions,
            "console": self.written,
            "trace": self.trace,
            "registers": dict(self.left.registers),
            "memory": {f"{at:#010x}": self.left.memory(at, size).hex() for at, size in dumps},
        }

    def lines(self, registers: bool, dumps: list[tuple[int, int]]) -> Iterator[str]:
        """Registers four a line, memory as `LINE_BYTES` a line, made as they are asked for."""
        if self.left is None:
            return
        if registers:
            cells = [f"{name:4} {value:#010x}" for name, value in self.left.registers.items()]
            yield from ("  ".join(cells[k : k + 4]) for k in range(0, len(cells), 4))
        for first, size in dumps:
            for address in range(first, first + size, LINE_BYTES):
                data = self.left.memory(address, min(LINE_BYTES, first + size - address))
                yield f"{address:#010x}  {data.hex(' ')}"


def printable(text: str) -> str:
    """Characters that steer a terminal become question marks: programs come from others."""
    return "".join(one if one.isprintable() or one in "\n\t" else "?" for one in text)


def _ending(done: ElfRun, machine: MachineDescription) -> str:
    return (
        f"exit code {done.exit_code}, {done.statistics.cycles:,.0f} cycles "
        f"({done.statistics.time_us:,.1f} us at {machine.frequency_mhz:g} MHz), "
        f"{done.statistics.instructions:,} instructions"
    )


def _ended(done: ElfRun) -> dict[str, Any]:
    return {"exit_code": done.exit_code, "cycles": done.statistics.cycles}
