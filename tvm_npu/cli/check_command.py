"""``tvm-npu check``: is a file what it is called? Without running any of it."""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from pathlib import Path

from tvm_npu.cli.arguments import add_limits_argument
from tvm_npu.cli.errors import CliError
from tvm_npu.cli.files import check_outputs, write_json
from tvm_npu.cli.shown import one_line, shown, told_of
from tvm_npu.cli.terminal import Terminal
from tvm_npu.codegen.errors import CodegenError
from tvm_npu.errors import NpuError
from tvm_npu.sim.bounded_files import (
    MOST_BYTES,
    MOST_TEXT_BYTES,
    kept_pipe,
    open_bounded,
    read_bounded,
    read_text_bounded,
)
from tvm_npu.sim.errors import SimError
from tvm_npu.sim.limits import Limits
from tvm_npu.sim.texts import MOST_FILE_BYTES, cause

DESCRIPTION = """\
Reads files as the other commands do and says what they hold, or what is wrong. Nothing of them is
run: of a compiled library (.so) the bytes are read and the programs in it checked, it is not
loaded. Machine files, platform files and specifications of sweeps (.toml), tuning logs (.jsonl,
.log), execution plans (.ir), executables (.elf), programs (.npu) and libraries are told by their
content and name, and what comes out of a pipe (/dev/stdin, <(...) of a shell) by its content.
Programs and executables are also checked against --limits: what loading them would take.
"""
EXAMPLES = """\
examples:
  tvm-npu check programs/*.npu my-npu.toml
  tvm-npu check model.so --limits dram_bytes=512m,host_bytes=2g
  tvm-npu check tune.jsonl conv1.ir --json checked.json
"""
UNKNOWN = (
    "not a kind of file that check knows: machine, platform and sweep files (.toml), tuning logs "
    "(.jsonl, .log), execution plans (.ir), programs (.npu), executables and libraries (ELF)"
)
_ELF = b"\x7fELF"
_RISCV = 243
_ERRORS = (CodegenError, NpuError, SimError, CliError)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    add_limits_argument(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a row a file to FILE")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    check_outputs(args, "json")
    rows = []
    for path in args.files:
        try:
            good, text = True, one_line(checked(path, args.limits))
        except _ERRORS as error:
            good, text = False, told_of(path, error)
        except Exception as error:  # the other files are told all the same
            good, text = False, one_line(f"no error for it ({type(error).__name__}: {error})")
        rows.append({"file": str(path), "good": good, "what": text})
        line = f"{shown(str(path))}: {'' if good else 'BAD: '}{text}"
        terminal.out.print(line, soft_wrap=True, markup=False)
    if args.json is not None:
        write_json(args.json, rows)
    bad = sum(not row["good"] for row in rows)
    if bad:
        raise CliError(f"{bad} of {len(rows)} files are not good")
    return 0


def checked(path: Path, limits: Limits) -> str:
    """What a file holds, or what comes out of a pipe. Raises the project's errors for one that is
    not good."""
    try:
        kept = kept_pipe(path)
        if kept is None:
            return _content(path, limits)
        with kept:
            name = f"/dev/fd/{kept.fileno()}"
            try:
                return _content(Path(name), limits)
            except _ERRORS as error:
                raise CliError(str(error).replace(name, str(path))) from error
    except OSError as error:
        raise CliError(f"cannot read it: {cause(error)}") from error


def _content(path: Path, limits: Limits) -> str:
    """`checked`, and OSError."""
    with open_bounded(path) as file:
        head = file.read(20)
    if not head and path.suffix not in (".jsonl", ".log"):  # logs without trials yet
        raise CliError("an empty file")
    if head.startswith(_ELF):
        is_riscv = len(head) == 20 and int.from_bytes(head[18:20], "little") == _RISCV
        return _executable(path, limits) if is_riscv else _library(path, limits)
    if path.suffix == ".npu" or head.startswith(b"TVMNPUP"):
        from tvm_npu.codegen.program.parts import MAGIC

        return _programs([read_bounded(path, MOST_BYTES, MAGIC)], limits)
    return _TEXTS.get(path.suffix, _BY_HEAD.get(head[:6], _other))(path)


def _programs(found: list[bytes], limits: Limits) -> str:
    from tvm_npu.codegen.program.format import Program
    from tvm_npu.runtime.loading import program_image
    from tvm_npu.sim.kinds import check_loads

    texts = []
    for data in found:
        program = Program.from_bytes(data)
        machine = program.machine_description()
        image = program.image(machine.dram.base_address)
        check_loads(program_image(program, image), machine, limits)
        texts.append(
            f"program {program.name} for {machine.name} ({machine.isa}, {program.precision}): "
            f"{len(program.layers)} layers, {len(program.code)} words of code, "
            f"{image.end_address - machine.dram.base_address} bytes of DRAM"
        )
    return "; ".join(texts)


def _library(path: Path, limits: Limits) -> str:
    from tvm_npu.codegen.program.format import MAGIC
    from tvm_npu.codegen.program.library import damage_in, program_bytes_in

    content = read_bounded(path)
    found = program_bytes_in(content)
    damage = damage_in(content, found)
    if damage is not None:
        raise CliError(f"a library, in it {len(found)} sound and {damage}")
    if not found:
        what = "a program in it is damaged" if MAGIC in content else "no program of tvm-npu in it"
        raise CliError(f"a library, and {what}")
    return "library, not loaded: " + _programs(found, limits)


def _executable(path: Path, limits: Limits) -> str:
    from tvm_npu.sim.kinds import RunsElf, usable_kinds

    for kind in usable_kinds().values():
        if isinstance(kind, RunsElf):
            return f"executable: {kind.elf_summary(path, limits)}"
    raise CliError("an executable, and no kind of machine here runs any")


def _toml(path: Path) -> str:
    from tvm_npu.pipelines.platform_file import load_platform
    from tvm_npu.sim.errors import MachineError
    from tvm_npu.sim.texts import parse_toml

    try:
        values = parse_toml(read_text_bounded(path, MOST_FILE_BYTES))
    except UnicodeDecodeError as error:
        raise MachineError(cause(error)) from error
    if "places" in values or "arrangements" in values:
        return f"platform {load_platform(path).name}"
    return _sweep(path) if "models" in values else _machine(path)


def _sweep(path: Path) -> str:
    """Of the files that it names, those of machines are read, and none but files."""
    from tvm_npu.sim.machine_file import machine_names
    from tvm_npu.sweep.designs import DesignSpace
    from tvm_npu.sweep.spec import read_spec

    spec = read_spec(path)
    for name in {*spec.machine.files, *filter(None, [spec.machine.base])} - {*machine_names()}:
        if os.path.exists(name) and not os.path.isfile(name):
            raise CliError(f"it names machine {name!r}, which is no file")
    space = DesignSpace(spec)
    designs = len(space.files) + (space.combinations if space.base else 0)
    return f"sweep of {len(space.spec.models)} models, {designs} machines before constraints"


def _machine(path: Path) -> str:
    from tvm_npu.sim.machine_file import load_machine

    machine = load_machine(path)
    return f"machine {machine.name} ({machine.isa}), {machine.frequency_mhz:g} MHz"


def _other(path: Path) -> str:
    """A file of TOML by another name, or `UNKNOWN`."""
    from tvm_npu.sim.kinds import file_readers
    from tvm_npu.sim.texts import TextError, parse_toml

    if path.suffix in file_readers():
        return _machine(path)
    try:
        values = parse_toml(read_text_bounded(path, MOST_FILE_BYTES))
    except (UnicodeDecodeError, TextError) as error:
        raise CliError(f"{cause(error)}; {UNKNOWN}") from error
    if not values.keys() & {"name", "isa", "extends", "places", "arrangements", "models"}:
        raise CliError(UNKNOWN)
    return _toml(path)


def _log(path: Path) -> str:
    from tvm_npu.codegen.tune.errors import TuningLogWarning
    from tvm_npu.codegen.tune.log import read_log

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", TuningLogWarning)
        trials = read_log(path)
    machines = ", ".join(sorted({trial.machine for trial in trials})) or "no machine"
    text = f"tuning log: {len(trials)} trials of {machines}" if trials else "empty tuning log"
    return f"{text}; its last line is torn, as an interrupted run leaves it" if said else text


def _plan(path: Path) -> str:
    from tvm_npu.cli.ir_command import TEXT_MACHINE, texts_of
    from tvm_npu.sim.machine_file import load_machine

    try:
        text = read_bounded(path, MOST_TEXT_BYTES).decode()
    except UnicodeDecodeError as error:
        raise CliError(cause(error)) from error
    texts_of(load_machine(TEXT_MACHINE)).read(text)
    return f"execution plan of {len(text.splitlines())} lines"


_TEXTS: dict[str, Callable[[Path], str]] = {
    ".toml": _toml,
    ".jsonl": _log,
    ".log": _log,
    ".ir": _plan,
}
_BY_HEAD: dict[bytes, Callable[[Path], str]] = {b'{"vers': _log, b"[info]": _plan}
"""What logs and plans begin with, where the name does not tell them."""
