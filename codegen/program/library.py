"""Programs inside of compiled libraries, found by their bytes: the library is not loaded."""

from __future__ import annotations

from tvm_npu.codegen.errors import ProgramError
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.program.parts import FORMAT_VERSION, MAGIC, PROLOGUE


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


def damage_in(library: bytes, found: list[bytes]) -> str | None:
    """Of programs beside those that `program_bytes_in` has found: how many there are, where the
    first begins, and what is wrong with it; None where there is none. The magic alone, as in this
    code's own constants, begins no program: a header or a known version stands behind it."""
    damaged = []
    end = 0
    for data in (*found, None):
        begin = len(library) if data is None else library.find(data, end)
        position = library.find(MAGIC, end, begin)
        while position >= 0:
            if _begins_program(library, position):
                damaged.append(position)
            position = library.find(MAGIC, position + 1, begin)
        end = begin + len(data or b"")
    if not damaged:
        return None
    first = damaged[0]
    text = f"{len(damaged)} damaged programs" if len(damaged) > 1 else "a damaged program"
    total = PROLOGUE.unpack_from(library, first)[3]
    try:
        Program.from_bytes(library[first : first + total])
    except ProgramError as error:
        return f"{text} at byte {first}: {error}"
    return f"{text} at byte {first}"


def _begins_program(library: bytes, position: int) -> bool:
    header = position + PROLOGUE.size
    if header > len(library):
        return False
    version = PROLOGUE.unpack_from(library, position)[1]
    return version == FORMAT_VERSION or library.startswith(b'{"', header)
