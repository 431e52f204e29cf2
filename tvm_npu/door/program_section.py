"""A program as a section of the object that calls it, without passing through LLVM's constants.

LLVM takes gigabytes and minutes for constants of a hundred megabytes. Here its assembler copies the
program from a file (``.incbin``) into the object, whenever the object is made: when the code is
first called, and when the library is exported.
"""

from __future__ import annotations

import atexit
import hashlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tvm_npu.codegen.freed_memory import give_back
from tvm_npu.door.region import MarkedRegion
from tvm_npu.temporary import Remover

_numbers = itertools.count()


def address_getter(symbol: str) -> str:
    """The name of the function in `section_code` that returns the program's address."""
    return f"{symbol}_program_bytes"


@dataclass(frozen=True)
class StoredProgram:
    """A program's bytes in a file that is kept until the process ends."""

    path: Path
    size_bytes: int
    digest: str


def stored(region: MarkedRegion) -> StoredProgram:
    """The program of ``region`` in a file, so that it need not stay in memory. Raises what
    `MarkedRegion.compiled` raises."""
    program = region.compiled()
    found = written(program.file_parts())
    del program
    give_back()
    return found


def written(parts: Iterable[bytes | bytearray]) -> StoredProgram:
    """A program in parts, one behind the other in a file: as a whole it would be as large as its
    constants once more."""
    folder = _folder(os.getpid())
    if not folder.is_dir():  # what tidies temporary files took it
        _folder.cache_clear()
        folder = _folder(os.getpid())
    path = folder / f"{next(_numbers)}"
    digest, size_bytes = hashlib.sha256(), 0
    with path.open("wb") as file:
        for part in parts:
            file.write(part)
            digest.update(part)
            size_bytes += len(part)
    return StoredProgram(path, size_bytes, digest.hexdigest())


def section_code(symbol: str, program: StoredProgram) -> str:
    """LLVM code that holds ``program`` and a function that returns its address."""
    escaped = str(program.path).replace("\\", "\\5C").replace('"', "\\22")
    lines = (".section .rodata", ".p2align 6", f"{symbol}_program:", f".incbin \\22{escaped}\\22")
    assembly = "\n".join(f'module asm "{line}"' for line in (*lines, ".text"))
    return (
        f"{assembly}\n@{symbol}_program = external hidden constant i8\n"
        f"define ptr @{address_getter(symbol)}() {{\n  ret ptr @{symbol}_program\n}}\n"
    )


@lru_cache(maxsize=1)
def _folder(process: int) -> Path:
    """Of one process: what a fork leaves behind is its own."""
    folder = Path(tempfile.mkdtemp(prefix="tvm-npu-programs-"))
    atexit.register(_remove, folder, process, Remover(folder))
    return folder


def _remove(folder: Path, process: int, remover: Remover) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
        remover.close()
