from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_npu.sim.errors import IsaError
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.isa.disassembler import disassemble, disassemble_code
from tvm_npu.sim.isa.table import Instruction
from tvm_npu.sim.snowflake.document import snowflake_document
from tvm_npu.sim.snowflake.isa import (
    COLUMN,
    SNOWFLAKE_INSTRUCTIONS,
    SNOWFLAKE_ISA,
    Destination,
    Special,
)

DOCUMENT = Path(__file__).parents[3] / "docs" / "isa-snowflake.md"


def test_committed_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text("utf-8") == snowflake_document(), (
        "run: python -m tvm_npu.sim.snowflake.document docs/isa-snowflake.md"
    )


def test_document_names_everything() -> None:
    text = snowflake_document()
    assert len(SNOWFLAKE_INSTRUCTIONS) == 13
    for item in SNOWFLAKE_INSTRUCTIONS:
        assert f"| `{item.mnemonic} {item.syntax}`" in text and item.meaning in text
    for register in Special:
        assert f"| {int(register)} | `{register.name}` | {register.meaning} |" in text


@st.composite
def instructions(draw: st.DrawFn) -> tuple[Instruction, dict[str, int]]:
    item = draw(st.sampled_from(SNOWFLAKE_INSTRUCTIONS))
    operands = {
        field.name: draw(st.integers(field.low // field.step, field.high // field.step))
        * field.step
        for field in item.fields
    }
    return item, operands


@given(instructions())
def test_words_decode_to_what_was_encoded(given_one: tuple[Instruction, dict[str, int]]) -> None:
    item, operands = given_one
    word = SNOWFLAKE_ISA.encode(item.mnemonic, **operands)
    assert SNOWFLAKE_ISA.decode(word) == (item, operands)
    assert assemble(disassemble(word, SNOWFLAKE_ISA), isa=SNOWFLAKE_ISA).tolist() == [word]
    row = SNOWFLAKE_ISA.decode_array(np.array([word], np.uint32))[0]
    assert row[0] == SNOWFLAKE_ISA.index[item.mnemonic]
    for field in item.fields:
        assert row[COLUMN[field.column]] == operands[field.name]


@given(st.integers(0, 2**32 - 1))
def test_a_word_is_one_instruction_or_none(word: int) -> None:
    fitting = [item for item in SNOWFLAKE_INSTRUCTIONS if word & item.mask == item.match]
    row = SNOWFLAKE_ISA.decode_array(np.array([word], np.uint32))[0]
    assert len(fitting) <= 1
    assert row[0] == (SNOWFLAKE_ISA.index[fitting[0].mnemonic] if fitting else -1)


def test_assembly_names_registers_and_labels() -> None:
    words = assemble("begin: movi out_step, 16\naddi r31, r0, -1\nble r1, r31, begin\n",
                     isa=SNOWFLAKE_ISA)  # fmt: skip
    _, first = SNOWFLAKE_ISA.decode(int(words[0])) or (None, {})
    assert first == {"dest": Destination["OUT_STEP"], "value": 16}
    text = disassemble_code(words, isa=SNOWFLAKE_ISA)
    assert "ble r1, r31, L_00000000" in text
    assert assemble(text, isa=SNOWFLAKE_ISA).tolist() == words.tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mac coop, keep, r0, r1, 4097", "length: 4097 is outside 1..4096"),
        ("addi r0, r1, 65536", "value: 65536 is outside -65536..65535"),
        ("add out, out, r1", "rs1 is 'out', expected a number"),
        ("sub r0, r1, r2", "no instruction 'sub'"),
    ],
)
def test_what_does_not_fit_is_named(text: str, message: str) -> None:
    with pytest.raises(IsaError, match=message):
        assemble(text, isa=SNOWFLAKE_ISA)
