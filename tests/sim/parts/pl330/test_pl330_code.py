"""The PL-330's table: ARM's encodings, text and back, the document."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_npu.sim.errors import IsaError
from tvm_npu.sim.parts.pl330.code import (
    ProgramBuilder,
    assemble,
    decode,
    decode_at,
    disassemble,
)
from tvm_npu.sim.parts.pl330.document import pl330_document
from tvm_npu.sim.parts.pl330.isa import PL330_ISA, ChannelControl, Register

DOCUMENT = Path(__file__).parents[4] / "docs" / "isa-pl330.md"

# Written by hand from the formats in ARM DDI 0424, section 4.3.
ENCODINGS = {
    "dmaend": "00",
    "dmald": "04",
    "dmalds": "05",
    "dmaldb": "07",
    "dmast": "08",
    "dmasts": "09",
    "dmastb": "0b",
    "dmarmb": "12",
    "dmawmb": "13",
    "dmanop": "18",
    "dmalp lc0, 1": "20 00",
    "dmalp lc1, 256": "22 ff",
    "dmalpend lc0, 2": "38 02",
    "dmalpend lc1, 255": "3c ff",
    "dmasev 0": "34 00",
    "dmasev 31": "34 f8",
    "dmawfe 3, 0": "36 18",
    "dmawfe 3, 1": "36 1a",
    "dmaaddh sar, 4": "54 04 00",
    "dmaaddh dar, 0xfffe": "56 fe ff",
    "dmaadnh sar, 0xfffc": "5c fc ff",
    "dmaadnh dar, 0": "5e 00 00",
    "dmamov sar, 0x12345678": "bc 00 78 56 34 12",
    "dmamov ccr, 0x3dc0f7": "bc 01 f7 c0 3d 00",
    "dmamov dar, 0xfffc0000": "bc 02 00 00 fc ff",
    "dmago 0, 0x100000, 0": "a0 00 00 00 10 00",
    "dmago 7, 1, 1": "a2 07 01 00 00 00",
}


@pytest.mark.parametrize("text", ENCODINGS)
def test_encoding(text: str) -> None:
    code = bytes.fromhex(ENCODINGS[text])
    assert assemble(text) == code
    (found,) = decode(code)
    assert assemble(str(found)) == code


def test_every_instruction_is_in_the_list() -> None:
    assert {text.split()[0] for text in ENCODINGS} == set(PL330_ISA.by_mnemonic)


def test_control_register_as_linux_programs_it() -> None:
    """16 beats of 8 bytes, both sides moving: SRC_INC 1, SIZE 3 << 1, LEN 15 << 4, and 14 up."""
    assert ChannelControl(8, 16).encode() == 0x003D_C0F7
    assert ChannelControl(4, 1).encode() == 0x0001_4005
    assert ChannelControl(1, 1, source_increments=False).encode() == 1 << 14
    assert ChannelControl(2, 3, destination_increments=False).encode() == 0x0008_8023
    assert ChannelControl(4, 16).burst_bytes == 64
    with pytest.raises(IsaError, match="beat of 3 bytes; allowed: 1, 2, 4, 8, 16"):
        ChannelControl(3, 1).encode()
    with pytest.raises(IsaError, match="burst of 17 beats; allowed: 1 to 16"):
        ChannelControl(4, 17).encode()


@given(st.binary(max_size=40))
def test_any_bytes_disassemble_and_assemble_back(code: bytes) -> None:
    assert assemble(disassemble(code)) == code


@given(st.binary(min_size=6, max_size=6))
def test_decoding_is_unique(code: bytes) -> None:
    matches = [
        item.mnemonic
        for item in PL330_ISA.instructions
        if int.from_bytes(code[: item.size_bytes], "little") & item.mask == item.match
    ]
    found = decode_at(code, 0)
    assert matches == ([] if found is None else [found.instruction.mnemonic])


def test_loops_are_closed_by_the_assembler() -> None:
    text = """
        dmalp lc0, 3      # outer
          dmalp lc1, 16
            dmald
            dmast
          dmalpend lc1
          dmaaddh sar, 100
        dmalpend lc0
    """
    builder = ProgramBuilder()
    with builder.loop(0, 3):
        with builder.loop(1, 16):
            builder.emit("dmald")
            builder.emit("dmast")
        builder.emit("dmaaddh", ra=0, imm=100)
    assert assemble(text) == builder.finish() == bytes.fromhex("2002220f04083c02546400" + "3809")


def test_a_listing_is_as_long_as_its_code() -> None:
    """Loops that never end are no deeper than the two counters."""
    code = assemble("dmalp lc0, 1\n" * 2000)
    assert len(disassemble(code)) < 2000 * 80 and assemble(disassemble(code)) == code


def test_loops_of_the_builder() -> None:
    builder = ProgramBuilder()
    with (
        pytest.raises(IsaError, match="loop counter 1 counts a loop that is still open"),
        builder.loop(1, 2),
        builder.loop(1, 2),
    ):
        pass
    builder = ProgramBuilder()
    with pytest.raises(IsaError, match="loop body of 258 bytes; at most 255"), builder.loop(0, 2):
        for _ in range(43):
            builder.emit("dmamov", rd=int(Register.SAR), imm=0)
    with pytest.raises(IsaError, match=r"dmalp: field count: 257 is outside 1\.\.256"):
        builder.emit("dmalp", lc=0, count=257)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dmald\ndmaldp", "line 2: PL-330 channel instructions: there is no 'dmaldp'"),
        ("dmalp lc0, 0", r"line 1: dmalp: field count: 0 is outside 1\.\.256"),
        ("dmalp lc2, 1", "line 1: dmalp: operand lc is 'lc2', expected a number"),
        ("dmaaddh sar, 65536", r"field imm: 65536 is outside 0\.\.65535"),
        ("dmasev 32", r"field event: 32 is outside 0\.\.31"),
        ("dmamov sar", "expected 'dmamov rd, imm'"),
        ("dmald 1", "operands '1', expected 'dmald'"),
        ("dmalpend lc1", "dmalpend: no dmalp of loop counter 'lc1' before it"),
        (".byte 256", r"byte 256 is outside 0\.\.255"),
        (".byte x", "operand value is 'x', expected a number"),
    ],
)
def test_bad_assembly(text: str, message: str) -> None:
    with pytest.raises(IsaError, match=message):
        assemble(text)


def test_what_is_no_instruction() -> None:
    with pytest.raises(IsaError, match="byte 0x35 at 1 begins no instruction"):
        decode(bytes.fromhex("0435"))
    with pytest.raises(IsaError, match="byte 0xbc at 0"):
        decode(bytes.fromhex("bc00"))


def test_committed_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text("utf-8") == pl330_document(), (
        "run: python -m tvm_npu.sim.parts.pl330.document docs/isa-pl330.md"
    )
