"""The table's promises: encoding and decoding are inverse, decoding is unique, no bit is free."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.sim.isa.words import KNOWN_RV32IM, instructions_with_operands
from tvm_npu.sim.errors import IsaError
from tvm_npu.sim.isa.document import encoding_parts
from tvm_npu.sim.isa.table import COLUMNS, WORD_MASK, Field, Instruction, Isa
from tvm_npu.sim.nmp.rv32im import RV32IM
from tvm_npu.sim.nmp.xnmp import NMP_ISA


@pytest.mark.parametrize("item", NMP_ISA.instructions, ids=lambda item: item.mnemonic)
def test_every_bit_is_constant_or_operand(item: Instruction) -> None:
    covered = item.mask
    for operand in item.fields:
        assert not covered & operand.mask
        covered |= operand.mask
    assert covered == WORD_MASK
    parts = encoding_parts(item)
    assert [low for _, low, _ in parts][-1] == 0 and parts[0][0] == 31
    assert all(one[1] == two[0] + 1 for one, two in zip(parts, parts[1:], strict=False))


@pytest.mark.parametrize("operand", sorted(
    {field for item in NMP_ISA.instructions for field in item.fields}, key=repr
), ids=lambda operand: f"{operand.name}-{operand.pieces}")  # fmt: skip
def test_a_fields_value_bits_are_all_there_once(operand: Field) -> None:
    value_bits = 0
    for high, low, shift in operand.pieces:
        piece = ((1 << (high - low + 1)) - 1) << shift
        assert not value_bits & piece
        value_bits |= piece
    assert value_bits == ((1 << operand.width) - 1) & ~(operand.step - 1)


@given(instructions_with_operands())
def test_decode_gives_back_what_was_encoded(case: tuple[Instruction, dict[str, int]]) -> None:
    instruction, operands = case
    word = NMP_ISA.encode(instruction.mnemonic, **operands)
    assert NMP_ISA.decode(word) == (instruction, operands)


@settings(max_examples=examples(20))
@given(st.lists(instructions_with_operands(), min_size=1, max_size=60))
def test_vectorised_decoder_agrees(cases: list[tuple[Instruction, dict[str, int]]]) -> None:
    words = np.array([item.encode(**operands) for item, operands in cases], np.uint32)
    table = NMP_ISA.decode_array(words)
    for row, (item, operands) in zip(table, cases, strict=True):
        expected = np.zeros(len(COLUMNS), np.int32)
        for operand in item.fields:
            expected[COLUMNS.index(operand.column)] = operands[operand.name]
        assert row[0] == NMP_ISA.index[item.mnemonic]
        assert row[1:].tolist() == expected.tolist()


@settings(max_examples=examples(400))
@given(st.integers(0, WORD_MASK), st.sampled_from(NMP_ISA.instructions))
def test_a_word_is_at_most_one_instruction(noise: int, near: Instruction) -> None:
    for word in (noise, noise & ~near.mask | near.match, noise & 0xFFFFFF80 | near.match & 0x7F):
        matching = [item for item in NMP_ISA.instructions if word & item.mask == item.match]
        assert len(matching) <= 1
        decoded = NMP_ISA.decode(word)
        assert (decoded is None) == (not matching)
        row = NMP_ISA.decode_array(np.array([word], np.uint32))[0]
        assert row[0] == (NMP_ISA.index[decoded[0].mnemonic] if decoded else -1)
        if decoded is not None:
            assert decoded[0].encode(**decoded[1]) == word


@pytest.mark.parametrize(("word", "text"), KNOWN_RV32IM)
def test_known_words(word: int, text: str) -> None:
    decoded = NMP_ISA.decode(word)
    assert decoded is not None and decoded[0].mnemonic == text.split()[0]
    assert decoded[0].encode(**decoded[1]) == word


def test_known_words_cover_rv32im() -> None:
    assert {text.split()[0] for _, text in KNOWN_RV32IM} == {item.mnemonic for item in RV32IM}


@pytest.mark.parametrize(
    ("mnemonic", "operands", "message"),
    [
        ("addi", {"rd": 1, "rs1": 2, "imm": 2048}, "addi: field imm: 2048 is outside -2048..2047"),
        ("addi", {"rd": 32, "rs1": 2, "imm": 0}, "addi: field rd: 32 is outside 0..31"),
        ("jal", {"rd": 0, "imm": 3}, "a multiple of 2"),
        ("jal", {"rd": 0, "imm": 1 << 20}, "outside -1048576..1048574"),
        ("lui", {"rd": 0, "imm": -1}, "outside 0..1048575"),
        ("add", {"rd": 1, "rs1": 2}, "add: missing or unknown operands rs2"),
        ("mystery", {}, "nmp has no instruction 'mystery'"),
    ],
)
def test_refusals(mnemonic: str, operands: dict[str, int], message: str) -> None:
    with pytest.raises(IsaError) as caught:
        NMP_ISA.encode(mnemonic, **operands)
    assert message in str(caught.value)


def test_tables_that_contradict_themselves_are_refused() -> None:
    rd = Field("rd", ((11, 7, 0),), "rd", register=True)
    one = Instruction("one", 0x0B, (rd,), "rd", "", "one")
    with pytest.raises(IsaError, match="two and one share an encoding"):
        Isa("x", "x", (one, Instruction("two", 0x0B, (rd,), "rd", "", "two")))
    with pytest.raises(IsaError, match="one is listed twice"):
        Isa("x", "x", (one, Instruction("one", 0x2B, (rd,), "rd", "", "one")))
    with pytest.raises(IsaError, match="constant bits overlap an operand"):
        Isa("x", "x", (Instruction("one", 0x8B, (rd,), "rd", "", "one"),))
    with pytest.raises(IsaError, match="does not name its fields"):
        Isa("x", "x", (Instruction("one", 0x0B, (rd,), "rs1", "", "one"),))
    with pytest.raises(IsaError, match="overlaps another field"):
        Isa("x", "x", (Instruction("one", 0x0B, (rd, Field("b", ((8, 8, 0),), "imm")), "rd, b", "",
                                   "one"),))  # fmt: skip
