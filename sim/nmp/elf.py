"""Bare-metal RV32IM programs: ELF executables as what a simulated core can load and run."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from elftools.common.exceptions import ELFError as _ToolsError
from elftools.elf.elffile import ELFFile

from tvm_npu.sim.bounded_files import MOST_EXECUTABLE_BYTES, read_bounded
from tvm_npu.sim.errors import ElfError
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.texts import cause

_COMPRESSED, _FLOAT_ABI = 0x1, 0x6
_EXECUTABLE, _WRITABLE, _READABLE = 0x1, 0x2, 0x4
_MAGIC = b"\x7fELF"
_HEADER_BYTES = 52
_HEADER = struct.Struct("<8I")
_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3
MOST_HEADERS = 1024
"""Program headers of an executable; linkers write a handful."""
_DAMAGE = (_ToolsError, ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError,
           struct.error, OSError)  # fmt: skip
"""What pyelftools raises on files whose tables point nowhere or hold nonsense."""


class _Header(NamedTuple):
    """A program header; ``address`` is the physical one."""

    kind: int
    offset: int
    virtual_address: int
    address: int
    file_size: int
    memory_size: int
    flags: int
    alignment: int


class Segment(NamedTuple):
    """Bytes to put at ``address``; up to ``memory_size`` bytes the rest is zero. ``data`` of a file
    is part of that, not a copy."""

    address: int
    data: bytes | memoryview
    memory_size: int
    writable: bool = True
    readable: bool = True

    @property
    def end(self) -> int:
        return self.address + self.memory_size


@dataclass(frozen=True)
class ElfImage:
    """An executable: where it starts and what must be in memory then. Segments do not overlap and
    are sorted by address; ``executable`` are those that hold instructions. ``name`` is for
    messages."""

    entry: int
    segments: tuple[Segment, ...]
    executable: tuple[Segment, ...]
    name: str = field(default="the executable", compare=False)

    def check_fits(self, machine: NmpMachine) -> None:
        """ElfError unless every segment lies inside the machine's DRAM."""
        low = machine.dram.base_address
        high = low + machine.dram.capacity_bytes
        for segment in self.segments:
            if segment.address < low or segment.end > high:
                raise ElfError(
                    f"ELF segment {segment.address:#x}..{segment.end:#x} is outside the DRAM of "
                    f"{machine.name}, {low:#x}..{high:#x}; link the program to {low:#x}"
                )


def read_elf(source: str | os.PathLike[str] | bytes, machine: NmpMachine | None = None) -> ElfImage:
    """The image of a statically linked RV32 little-endian executable.

    ``source`` is a path or the file's bytes; with ``machine`` the segments are checked against its
    DRAM. Raises ElfError for an unreadable, truncated or damaged file, for another class, byte
    order, machine, type or extension, and for segments that overlap or leave the address space.
    """
    if isinstance(source, bytes):
        name, content = "ELF data", source
    else:
        name = str(source)
        try:
            content = read_bounded(source, MOST_EXECUTABLE_BYTES, _MAGIC)
        except OSError as error:
            raise ElfError(f"cannot read {name!r}: {cause(error)}") from error
    try:
        image = replace(_read(content), name=name)
        if machine is not None:
            image.check_fits(machine)
    except ElfError as error:
        raise ElfError(f"{name}: {error}") from None
    except _DAMAGE as error:
        raise ElfError(f"{name}: damaged ELF file: {error}") from error
    return image


def _read(content: bytes) -> ElfImage:
    if not content.startswith(_MAGIC):
        raise ElfError("not an ELF file: it does not start with 7f 45 4c 46")
    if len(content) < _HEADER_BYTES:
        raise ElfError(f"truncated: {len(content)} bytes, the header alone has {_HEADER_BYTES}")
    if content[4] != 1:
        raise ElfError(f"ELF class {content[4]}, expected 1 (32 bits)")
    if content[5] != 1:
        raise ElfError(f"ELF byte order {content[5]}, expected 1 (little-endian)")
    elf = ELFFile(io.BytesIO(content))
    header = elf.header
    if header["e_machine"] != "EM_RISCV":
        raise ElfError(f"built for machine {header['e_machine']}, expected EM_RISCV")
    if header["e_type"] != "ET_EXEC":
        raise ElfError(f"type {header['e_type']}, expected ET_EXEC (a linked executable)")
    if header["e_flags"] & _COMPRESSED:
        raise ElfError("built with compressed instructions; build with -march=rv32im")
    if header["e_flags"] & _FLOAT_ABI:
        raise ElfError("built for hardware floating point; build with -march=rv32im -mabi=ilp32")
    segments = []
    executable = []
    for entry in _headers(content, header["e_phoff"], header["e_phnum"], header["e_phentsize"]):
        if entry.kind in (_INTERPRETER, _DYNAMIC):
            raise ElfError("dynamically linked; link with -static")
        if entry.kind != _LOAD or not entry.memory_size:
            continue
        segment = _load(content, entry)
        segments.append(segment)
        if entry.flags & _EXECUTABLE:
            executable.append(segment)
    segments.sort(key=lambda segment: segment.address)
    for one, two in zip(segments, segments[1:], strict=False):
        if one.end > two.address:
            raise ElfError(
                f"segments {one.address:#x}..{one.end:#x} and "
                f"{two.address:#x}..{two.end:#x} overlap"
            )
    start = header["e_entry"]
    if start % 4 or not any(s.address <= start and start + 4 <= s.end for s in executable):
        raise ElfError(f"entry {start:#x} is no instruction address of an executable segment")
    return ElfImage(start, tuple(segments), tuple(executable))


def _headers(content: bytes, offset: int, count: int, size: int) -> Iterator[_Header]:
    if count > MOST_HEADERS:
        raise ElfError(f"{count} program headers; at most {MOST_HEADERS}: link it as a whole")
    if count and size != _HEADER.size:
        raise ElfError(f"program headers of {size} bytes, expected {_HEADER.size}")
    end = offset + count * size
    if end > len(content):
        raise ElfError(f"truncated: program headers end at byte {end} of {len(content)}")
    return map(_Header._make, _HEADER.iter_unpack(content[offset:end]))


def _load(content: bytes, entry: _Header) -> Segment:
    """What of the file a segment is, which is not copied: many may be the same bytes of it."""
    address, begin, end = entry.address, entry.offset, entry.offset + entry.file_size
    if end > len(content):
        raise ElfError(f"truncated: segment {address:#x} ends at byte {end} of {len(content)}")
    if entry.file_size > entry.memory_size:
        raise ElfError(
            f"segment {address:#x} has {entry.file_size} bytes for a memory size of "
            f"{entry.memory_size}"
        )
    if address + entry.memory_size > 1 << 32:
        raise ElfError(
            f"segment {address:#x} with {entry.memory_size} bytes leaves the 32-bit address space"
        )
    data = memoryview(content)[begin:end]
    may_write, may_read = bool(entry.flags & _WRITABLE), bool(entry.flags & _READABLE)
    return Segment(address, data, entry.memory_size, may_write, may_read)
