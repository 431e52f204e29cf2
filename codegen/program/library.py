"""Programs inside of compiled libraries, found by their bytes: the library is not loaded."""

from __future__ import annotations

from tvm_npu.codegen.errors import ProgramError
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.program.parts import MAGIC, PROLOGUE


def program_bytes_in(library: bytes) -> list[bytes]:
    """The whole and sound program files that lie anywhere in ``library``, in their order there."""
    found = []
    position = library.find(MAGIC)
    while position >= 0:
        following = position + 1
        prologue = library[position : position + PROLOGUE.size]
        if len(prologue) == PROLOGUE.size:
            data = library[position : position + PROLOGUE.unpack(prologue)[3]]
            try:
                Program.from_bytes(data)
            except ProgramError:
                pass  # the magic alone, as in this code's own constants
            else:
                found.append(data)
                following = position + len(data)
        position = library.find(MAGIC, following)
    return found


def programs_in(library: bytes) -> list[Program]:
    """The same, read."""
    return [Program.from_bytes(data) for data in program_bytes_in(library)]
