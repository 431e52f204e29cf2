"""Programs in libraries: found wherever they lie, in work that grows with the library alone."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from tests.codegen.nmp.simulated import small_machine
from tvm_npu.codegen.errors import ProgramError
from tvm_npu.codegen.program.format import FORMAT_VERSION, MAGIC, PROLOGUE, Program
from tvm_npu.codegen.program.library import MOST_OVERLAPS, program_bytes_in
from tvm_npu.codegen.program.parts import DEBUG, RELOCATION, SEGMENTS, SegmentSize
from tvm_npu.sim.nmp.xnmp import NMP_ISA


def program(name: str) -> bytes:
    """A sound program of one instruction."""
    code = np.array([NMP_ISA.encode("jalr", rd=0, rs1=1, imm=0)], np.uint32)
    sizes = {segment: SegmentSize(0, 4) for segment in SEGMENTS}
    sizes[SEGMENTS[0]] = SegmentSize(4, 4)
    return Program(
        name, small_machine(1, 1).model_dump(mode="json"), "int16", "none", (), (), (), sizes, 0,
        (), ({},), code, b"", np.zeros(0, RELOCATION), np.array([(-1, 0, 0)], DEBUG),
    ).to_bytes()  # fmt: skip


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each thing that is hashed or read as a program."""
    found: list[int] = []
    sha256, from_bytes = hashlib.sha256, Program.from_bytes

    def hashed(data: bytes) -> object:
        found.append(len(data))
        return sha256(data)

    def read(data: bytes) -> Program:
        found.append(len(data))
        return from_bytes(data)

    monkeypatch.setattr(hashlib, "sha256", hashed)
    monkeypatch.setattr(Program, "from_bytes", read)
    return found


def test_sound_programs_are_found_among_other_bytes() -> None:
    one, two = program("one"), program("two")
    damaged = one[:-1] + bytes([one[-1] ^ 1])
    library = b"\x7fELF" + MAGIC + one + b"x" + damaged + MAGIC + two + MAGIC + one[:-1]
    assert program_bytes_in(library) == [one, two]
    assert program_bytes_in(damaged + one[: PROLOGUE.size] + two) == [two]
    assert program_bytes_in(b"") == program_bytes_in(MAGIC) == []


def test_prologues_inside_of_each_other_are_looked_at_once(looked_at: list[int]) -> None:
    """Each says that all of the rest is its header, or that its header is empty and all of the
    rest are its sections."""
    count = 200
    size = count * PROLOGUE.size
    for header in (0, 1):
        library = b"".join(
            PROLOGUE.pack(MAGIC, FORMAT_VERSION, header * (rest - PROLOGUE.size), rest, bytes(32))
            for rest in range(size, 0, -PROLOGUE.size)
        )
        looked_at.clear()
        assert program_bytes_in(library) == []
        assert sum(looked_at) <= len(library)


def test_damaged_programs_inside_of_each_other_are_refused(looked_at: list[int]) -> None:
    """Their headers are sound, and each says that all of the rest are its sections."""
    library, text = b"", b"{}"
    for _ in range(50):
        total = PROLOGUE.size + len(text) + len(library)
        digest = hashlib.sha256(text).digest()
        library = PROLOGUE.pack(MAGIC, FORMAT_VERSION, len(text), total, digest) + text + library
    looked_at.clear()
    with pytest.raises(ProgramError, match=f"a library of {len(library)} bytes: .* inside of oth"):
        program_bytes_in(library)
    assert sum(looked_at) <= 2 * MOST_OVERLAPS * len(library)
