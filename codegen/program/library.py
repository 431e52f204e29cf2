"""Programs inside of compiled libraries, found by their bytes: the library is not loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from tvm_npu.codegen.errors import ProgramError
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.program.parts import FORMAT_VERSION, MAGIC, PROLOGUE

MOST_OVERLAPS = 2
"""Times the library's length: bytes that damaged programs which lie inside of each other may say
to be theirs."""


def program_bytes_in(library: bytes) -> list[bytes]:
    """The whole and sound program files that lie anywhere in ``library``, in their order there.
    ProgramError for a library made of damaged programs inside of each other, which would take a
    time that grows with the square of its length."""
    found = []
    end = looked_at = 0
    for position, total in _candidates(library):
        if position < end:
            continue
        looked_at += total
        if looked_at > MOST_OVERLAPS * len(library):
            raise ProgramError(
                f"a library of {len(library)} bytes: {looked_at} bytes of damaged programs, most "
                f"of them inside of others, up to byte {position}; compile the model again"
            )
        data = library[position : position + total]
        try:
            Program.from_bytes(data)
        except ProgramError:
            continue
        found.append(data)
        end = position + total
    return found


def _candidates(library: bytes) -> Iterator[tuple[int, int]]:
    """(position, bytes) of each program that ends in the library and has a header that agrees with
    its sum. The magic cannot stand in JSON, so no two of these headers overlap, and each byte is
    looked at once; it also stands alone, as in this code's own constants."""
    position = library.find(MAGIC)
    view = memoryview(library)
    while position >= 0:
        begin = position + PROLOGUE.size
        if begin <= len(library):
            _, _, header_bytes, total, digest = PROLOGUE.unpack_from(library, position)
            end = begin + header_bytes
            whole = end <= position + total <= len(library)
            if whole and library.find(MAGIC, position + 1, end) < 0:
                if hashlib.sha256(view[begin:end]).digest() == digest:
                    yield position, total
        position = library.find(MAGIC, position + 1)


def damage_in(library: bytes, found: list[bytes]) -> str | None:
    """Of programs beside those that `program_bytes_in` has found: how many there are, where the
    first begins, and what is wrong with it; None where there is none. The magic alone, as in this
    code's own constants, begins no program: a header or a known version stands behind it."""
    first, count, end = 0, 0, 0
    for data in (*found, None):
        begin = len(library) if data is None else library.find(data, end)
        position = library.find(MAGIC, end, begin)
        while position >= 0:
            if _begins_program(library, position):
                first, count = first if count else position, count + 1
            position = library.find(MAGIC, position + 1, begin)
        end = begin + len(data or b"")
    if not count:
        return None
    text = f"{count} damaged programs" if count > 1 else "a damaged program"
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
