"""``tvm-npu doctor``: what works here, what does not, and what to do about it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_npu.cli.files import check_outputs, write_json
from tvm_npu.cli.tables import plural
from tvm_npu.cli.terminal import Terminal

if TYPE_CHECKING:
    from tvm_npu.doctor import Examination

DESCRIPTION = """\
Says which door opens (Relay of TVM 0.19, Relax of TVM 0.26 and later), which versions are
installed, which combinations are known to be bad, what machine code is kept on disk, and which
processor this is; then what to do. Exit code 1 when something has to be mended.
"""
EXAMPLES = """\
examples:
  tvm-npu doctor
  tvm-npu doctor --json here.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the same as JSON")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    check_outputs(args, "json")
    from tvm_npu.doctor import examine

    with terminal.steps() as steps:
        steps.begin("looking around")
        found = examine()
    for line in _lines(found):
        terminal.out.print(line, soft_wrap=True)
    if args.json is not None:
        write_json(args.json, found.to_dict())
    return 1 if found.faults else 0


def _lines(found: Examination) -> Iterator[str]:
    here = found.environment
    version = ".".join(map(str, here.python))
    yield f"tvm-npu {here.version} in {here.location}"
    yield f"Python {version} ({here.executable}), {here.system}, {here.libc}"
    flags = ", ".join(here.cpu_flags) or "none of the vector extensions that TVM looks for"
    yield f"CPU: {here.cpu}, {here.usable_cores} cores to use, load {here.load:.2f}; {flags}"
    yield ""
    for door in found.doors:
        state = "opens" if door.opens else f"closed: {door.reason}"
        yield f"door {door.name} ({door.module}): {state}"
    yield f"tvm: {here.tvm or 'not installed'}"
    for name, text in here.packages.items():
        yield f"  {name} {text}"
    for name, text in here.variables.items():
        yield f"  {name}={text}"
    yield ""
    for cache in found.caches:
        size = cache.size_bytes / 1e6
        kept = f"machine code of {plural(cache.functions, 'function')}, {size:.1f} MB"
        yield f"{cache.package}: {kept}{'' if cache.writable else ', cannot be written'}"
    yield ""
    for fault in found.faults:
        yield f"fault: {fault.found}; {fault.remedy}"
    for text in found.advice:
        yield f"advice: {text}"
    if not found.faults and not found.advice:
        yield "nothing to do"
