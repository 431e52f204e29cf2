"""ELF files: what is read, and that everything a core cannot run is refused with a reason."""

from __future__ import annotations

import os
import resource
import struct
import tracemalloc
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_npu.sim.errors import ElfError
from tvm_npu.sim.limits import LimitError, Limits
from tvm_npu.sim.nmp.bare_metal import run_elf
from tvm_npu.sim.nmp.elf import MOST_HEADERS, ElfImage, Segment, read_elf
from tvm_npu.sim.nmp.machine import load_nmp_machine, nmp_machine_from_dict
from tvm_npu.sim.nmp.xnmp import NMP_ISA
from tvm_npu.sim.traps import Trap

DATA = Path(__file__).parent / "data"
PROGRAMS = ("checksum", "muldiv", "memory")
MEMORY = (DATA / "memory.elf").read_bytes()
PROGRAM_HEADER = 52  # offset of the first of two 32-byte program headers


def patched(offset: int, form: str, value: int) -> bytes:
    content = bytearray(MEMORY)
    struct.pack_into("<" + form, content, offset, value)
    return bytes(content)


@pytest.mark.parametrize("name", PROGRAMS)
def test_reads_programs(name: str) -> None:
    machine = load_nmp_machine("nmp-4x8")
    path = DATA / f"{name}.elf"
    image = read_elf(path, machine)
    assert image == read_elf(str(path)) == read_elf(path.read_bytes())
    code, data = image.segments
    assert image.entry == code.address == machine.dram.base_address
    assert code.memory_size == len(code.data) and data.memory_size > len(data.data)
    first = NMP_ISA.decode(int.from_bytes(code.data[:4], "little"))
    assert first is not None and first[0].mnemonic == "auipc"


@pytest.mark.parametrize("flags", range(8))
def test_flags_of_segments(flags: int) -> None:
    """Of the second one, which is data."""
    image = read_elf(patched(PROGRAM_HEADER + 32 + 24, "I", flags))
    data = image.segments[1]
    found = data.readable, data.writable, data in image.executable
    assert found == (flags & 4 > 0, flags & 2 > 0, flags & 1 > 0)


def test_initialised_data_and_zeros() -> None:
    data = read_elf(MEMORY).segments[1]
    assert struct.pack("<I", 0x89ABCDEF) in bytes(data.data)
    assert bytes([0x80, 0x7F, 0xFF, 0x00, 0x01, 0x80, 0xFE, 0xFF]) in bytes(data.data)
    assert data.memory_size - len(data.data) >= 64 * 4 + 4096


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an ELF file"),
        (b"#!/bin/sh\n", "not an ELF file"),
        (MEMORY[:40], "truncated: 40 bytes, the header alone has 52"),
        (MEMORY[:200], "truncated: segment 0x80000000 ends at byte"),
        (patched(4, "B", 2), "ELF class 2, expected 1 (32 bits)"),
        (patched(5, "B", 2), "ELF byte order 2, expected 1 (little-endian)"),
        (patched(18, "H", 62), "built for machine EM_X86_64, expected EM_RISCV"),
        (patched(16, "H", 1), "type ET_REL, expected ET_EXEC"),
        (patched(16, "H", 3), "type ET_DYN, expected ET_EXEC"),
        (patched(36, "I", 1), "compressed instructions; build with -march=rv32im"),
        (patched(36, "I", 4), "hardware floating point"),
        (patched(24, "I", 0x8000_0002), "entry 0x80000002 is no instruction address"),
        (patched(24, "I", 0x8000_1000), "entry 0x80001000 is no instruction address"),
        (patched(PROGRAM_HEADER, "I", 3), "dynamically linked"),
        (patched(PROGRAM_HEADER, "I", 2), "dynamically linked"),
        (patched(42, "H", 64), "program headers of 64 bytes, expected 32"),
        (patched(44, "H", 1024), "truncated: program headers end at byte 32820 of"),
        (patched(44, "H", 1025), "1025 program headers; at most 1024"),
        (patched(44, "H", 0xFFFF), "65535 program headers; at most 1024"),
        (patched(PROGRAM_HEADER + 12, "I", 0x8000_0100), "overlap"),
        (patched(PROGRAM_HEADER + 20, "I", 8), "bytes for a memory size of 8"),
        (patched(PROGRAM_HEADER + 20, "I", 0x8000_0001), "leaves the 32-bit address space"),
        (patched(PROGRAM_HEADER + 24, "I", 4), "entry 0x80000000 is no instruction address"),
    ],
)
def test_refusals(content: bytes, message: str) -> None:
    with pytest.raises(ElfError) as caught:
        read_elf(content)
    assert str(caught.value).startswith("ELF data: ") and message in str(caught.value)


def bomb(apart: int) -> bytes:
    """A megabyte of the file, claimed by as many segments as there may be, ``apart`` bytes of
    memory from each to the next."""
    size = 1 << 20
    headers = b"".join(
        struct.pack("<8I", 1, 4, 0, number * apart, size - 4, size, 7, 4)
        for number in range(MOST_HEADERS)
    )
    start = bytearray(MEMORY[:PROGRAM_HEADER])
    struct.pack_into("<I", start, 24, 0)
    struct.pack_into("<H", start, 44, MOST_HEADERS)
    return (bytes(start) + headers).ljust(size, b"\0")


@pytest.mark.parametrize(("apart", "refused"), [(0, True), (1 << 19, True), (1 << 20, False)])
def test_segments_share_the_bytes_of_their_file(apart: int, refused: bool) -> None:
    content = bomb(apart)
    tracemalloc.start()
    if refused:
        with pytest.raises(ElfError, match="overlap"):
            read_elf(content)
    else:
        image = read_elf(content)
        assert len(image.segments) == MOST_HEADERS
        with pytest.raises(ElfError, match="code may take 16777216 bytes"):
            run_elf(image, load_nmp_machine("nmp-4x8"))
        with pytest.raises(ElfError, match="outside the DRAM"):
            read_elf(content, load_nmp_machine("nmp-4x8"))
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_unreadable_files(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.elf", "/dev/zero"):
        with pytest.raises(ElfError, match="cannot read"):
            read_elf(path)


def test_segments_must_lie_in_dram() -> None:
    values = load_nmp_machine("nmp-4x8").model_dump()
    values["dram"]["base_address"] = 0x9000_0000
    moved = nmp_machine_from_dict(values)
    with pytest.raises(ElfError) as caught:
        read_elf(DATA / "checksum.elf", moved)
    assert "segment 0x80000000..0x80000108 is outside the DRAM of nmp-4x8" in str(caught.value)
    assert "0x90000000..0xd0000000" in str(caught.value)

    values["dram"].update(base_address=0x8000_0000, capacity_bytes=1 << 16)
    small = nmp_machine_from_dict(values)
    read_elf(MEMORY, small)
    with pytest.raises(ElfError, match="outside the DRAM"):
        read_elf(patched(PROGRAM_HEADER + 32 + 20, "I", 1 << 16), small)


@settings(max_examples=examples(300))
@given(
    st.integers(0, len(MEMORY)),
    st.lists(st.tuples(st.integers(0, 115), st.integers(0, 255)), max_size=4),
)
@example(len(MEMORY), [(32, 0xFF), (33, 0xFF)])
def test_damage_is_an_elf_error_or_an_image(length: int, edits: list[tuple[int, int]]) -> None:
    content = bytearray(MEMORY)
    for offset, value in edits:
        content[offset] = value
    try:
        image = read_elf(bytes(content[:length]))
    except ElfError:
        return
    assert isinstance(image, ElfImage)
    for segment in image.segments:
        assert len(segment.data) <= segment.memory_size <= (1 << 32) - segment.address


def fibonacci_checksum() -> int:
    """What tests/sim/nmp/data/checksum.c computes."""
    values = [0, 1]
    while len(values) < 64:
        values.append((values[-1] + values[-2]) % (1 << 32))
    values.sort(reverse=True)
    return zlib.crc32(struct.pack("<64I", *values)) & 0x7FFF_FFFF


@pytest.mark.parametrize(
    ("name", "exit_code"), [("checksum", fibonacci_checksum()), ("muldiv", 0), ("memory", 0)]
)
def test_programs_run(name: str, exit_code: int) -> None:
    machine = load_nmp_machine("nmp-4x8")
    assert run_elf(read_elf(DATA / f"{name}.elf", machine), machine).exit_code == exit_code


def test_a_program_that_meets_an_illegal_word_traps() -> None:
    machine = load_nmp_machine("nmp-4x8")
    content = bytearray(MEMORY)
    code_offset = struct.unpack_from("<I", content, PROGRAM_HEADER + 4)[0]
    content[code_offset : code_offset + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(Trap, match=r"\.word 0xffffffff"):
        run_elf(read_elf(bytes(content), machine), machine)


def test_a_wrong_multiplier_would_be_noticed() -> None:
    """muldiv.elf with every mulhu turned into mulhsu must fail at check 4."""
    machine = load_nmp_machine("nmp-4x8")
    content = bytearray((DATA / "muldiv.elf").read_bytes())
    changed = 0
    for offset in range(PROGRAM_HEADER + 64, len(content) - 3, 4):
        word = int.from_bytes(content[offset : offset + 4], "little")
        decoded = NMP_ISA.decode(word)
        if decoded is not None and decoded[0].mnemonic == "mulhu":
            word = NMP_ISA.encode("mulhsu", **decoded[1])
            content[offset : offset + 4] = word.to_bytes(4, "little")
            changed += 1
    assert changed
    assert run_elf(read_elf(bytes(content), machine), machine).exit_code == 4


def test_segments_far_apart_take_little() -> None:
    """The data segment 1,000 MB away: nothing between is decoded or touched."""
    machine = load_nmp_machine("nmp-4x8")
    image = read_elf(DATA / "memory.elf", machine)
    far = Segment(machine.dram.base_address + 1000 * (1 << 20), b"\x07\0\0\0", 4096)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = run_elf(replace(image, segments=(*image.segments, far)), machine)
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert run.exit_code == 0 and run.memory(far.address, 4) == far.data
    assert grown_mib < 400
    with pytest.raises(ElfError, match="code may take 16777216 bytes"):
        run_elf(replace(image, executable=(*image.executable, far)), machine)
    with pytest.raises(LimitError, match="limit dram_bytes allows 65536"):
        run_elf(image, machine, Limits(dram_bytes=1 << 16))


def test_only_executable_segments_hold_instructions() -> None:
    machine = load_nmp_machine("nmp-4x8")
    image = read_elf(DATA / "checksum.elf", machine)
    data = Segment(image.segments[-1].end + 64, image.executable[0].data, 4096)
    with pytest.raises(Trap, match="no instruction of the code"):
        run_elf(replace(image, entry=data.address, segments=(*image.segments, data)), machine)


def test_executables_are_no_larger_than_memories(tmp_path: Path) -> None:
    path = tmp_path / "a.elf"
    path.touch()
    os.truncate(path, (1 << 29) + 1)
    with pytest.raises(ElfError, match="536870913 bytes; such a file may have 536870912"):
        read_elf(path)
