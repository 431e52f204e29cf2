"""Assembler and disassembler: inverse to each other, right on known words, clear in errors."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.sim.isa.words import KNOWN_RV32IM, instructions_with_operands
from tvm_npu.sim.errors import IsaError
from tvm_npu.sim.isa.assembler import assemble, pseudo_instructions
from tvm_npu.sim.isa.builder import CodeBuilder
from tvm_npu.sim.isa.disassembler import disassemble, disassemble_code
from tvm_npu.sim.isa.table import WORD_MASK, Instruction
from tvm_npu.sim.nmp.xnmp import NMP_ISA, DmaRegister, MacRegister


@given(instructions_with_operands())
def test_one_instruction_there_and_back(case: tuple[Instruction, dict[str, int]]) -> None:
    instruction, operands = case
    word = instruction.encode(**operands)
    text = disassemble(word, isa=NMP_ISA)
    assert text.split()[0] == instruction.mnemonic
    assert assemble(text, isa=NMP_ISA).tolist() == [word]


@settings(max_examples=examples(50))
@given(
    st.lists(
        st.one_of(
            instructions_with_operands().map(lambda case: case[0].encode(**case[1])),
            st.integers(0, WORD_MASK),
            st.integers(-16, 16).map(lambda n: NMP_ISA.encode("jal", rd=1, imm=2 * n)),
        ),
        max_size=40,
    ),
    st.integers(0, (1 << 30) - 1).map(lambda number: 4 * number),
)
def test_a_listing_there_and_back(words: list[int], base_address: int) -> None:
    comments = {0: "first\nword", 7: "", len(words): "end"}
    listing = disassemble_code(words, base_address, comments, isa=NMP_ISA)
    assert assemble(listing, base_address, isa=NMP_ISA).tolist() == words


@pytest.mark.parametrize(("word", "text"), KNOWN_RV32IM)
def test_known_words(word: int, text: str) -> None:
    assert assemble(text, isa=NMP_ISA).tolist() == [word]
    assert assemble(disassemble(word, isa=NMP_ISA), isa=NMP_ISA).tolist() == [word]


@pytest.mark.skipif(shutil.which("riscv64-unknown-elf-as") is None, reason="no GNU as for RISC-V")
def test_gnu_as_agrees(tmp_path: Path) -> None:
    lines = []
    for _, text in KNOWN_RV32IM:
        mnemonic, _, operands = text.partition(" ")
        if mnemonic in ("jal", "beq", "bne", "blt", "bge", "bltu", "bgeu"):
            *registers, distance = operands.split(", ")
            operands = ", ".join([*registers, f".{int(distance):+d}"])
        lines.append("fence" if mnemonic == "fence" else f"{mnemonic} {operands}")
    (tmp_path / "all.s").write_text("\n".join(lines) + "\n")
    for command in (
        "riscv64-unknown-elf-as -march=rv32im -mabi=ilp32 all.s -o all.o",
        "riscv64-unknown-elf-objcopy -O binary -j .text all.o all.bin",
    ):
        subprocess.run(command.split(), cwd=tmp_path, check=True)
    words = np.frombuffer((tmp_path / "all.bin").read_bytes(), "<u4").tolist()
    assert len(words) == len(lines)
    for word, (known, text) in zip(words, KNOWN_RV32IM, strict=True):
        assert word == known, text


def test_listing() -> None:
    words = assemble(
        """
        start:  li a0, 3
        again:  addi a0, a0, -1     # counts down
                bnez a0, again
                nmp_mcfgi IN_CHANNELS, 16
                nmp_conv2d 1, bias
                nmp_wait tlt, 1, a0
                lui t0, 0x80000
                j start
                .word 0xffffffff
        """, isa=NMP_ISA
    )
    assert disassemble_code(words, 0x80000000, {3: "conv1, tile 0"}, isa=NMP_ISA) == (
        "L_80000000:\n"
        "    addi a0, zero, 3                  # 80000000: 00300513\n"
        "L_80000004:\n"
        "    addi a0, a0, -1                   # 80000004: fff50513\n"
        "    bne a0, zero, L_80000004          # 80000008: fe051ee3\n"
        "    # conv1, tile 0\n"
        "    nmp_mcfgi in_channels, 16         # 8000000c: 0100108b\n"
        "    nmp_conv2d 1, bias                # 80000010: 0220200b\n"
        "    nmp_wait tlt, 1, a0               # 80000014: 0205105b\n"
        "    lui t0, 0x80000                   # 80000018: 800002b7\n"
        "    jal zero, L_80000000              # 8000001c: fe5ff06f\n"
        "    .word 0xffffffff                  # 80000020: ffffffff\n"
    )


def test_values_without_a_name_are_numbers() -> None:
    unnamed = set(range(32)) - {int(one) for one in DmaRegister}
    assert unnamed
    for number in unnamed:
        word = NMP_ISA.encode("nmp_dcfg", creg=number, rs1=5)
        assert disassemble(word, isa=NMP_ISA) == f"nmp_dcfg {number}, t0"
    word = NMP_ISA.encode("nmp_mcfg", creg=MacRegister.LOW, rs1=5)
    assert disassemble(word, isa=NMP_ISA) == "nmp_mcfg low, t0"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("nop", "addi zero, zero, 0"),
        ("mv a0, s1", "addi a0, s1, 0"),
        ("ret", "jalr zero, 0(ra)"),
        ("jr a5", "jalr zero, 0(a5)"),
        ("not a0, a1", "xori a0, a1, -1"),
        ("fence", "fence zero, zero, 0xff"),
        ("fence rw, rw", "fence zero, zero, 0x33"),
        ("fence iorw ,w", "fence zero, zero, 0xf1"),
        ("fence zero, zero, 3", ".word 0x0030000f"),
        ("lw a0,(a1)", "lw a0, 0(a1)"),
        ("sw a0 , ( sp )", "sw a0, 0(sp)"),
        ("j 8", "jal zero, 8"),
        ("call -8", "jal ra, -8"),
        ("beqz a0, 4", "beq a0, zero, 4"),
        ("bnez a0, 4", "bne a0, zero, 4"),
        ("li a0, 0", "addi a0, zero, 0"),
        ("li a0, -2048", "addi a0, zero, -2048"),
        ("li a0, 0x1000", "lui a0, 1"),
        ("li a0, 0x7fffffff", "lui a0, 0x80000\naddi a0, a0, -1"),
        ("li a0, 0xffffffff", "addi a0, zero, -1"),
        ("li a0, -2147483648", "lui a0, 0x80000"),
        ("\tlw\ta0 , 4 ( sp )", "lw x10, 4(x2)"),
        ("a: b: .word a, b, 0b101, -1", ".word 0, 0, 5, 0xffffffff"),
    ],
)
def test_pseudo_instructions_and_spelling(text: str, same: str) -> None:
    assert assemble(text, isa=NMP_ISA).tolist() == assemble(same, isa=NMP_ISA).tolist()


def test_pseudo_instructions_are_all_listed() -> None:
    written = {text.split()[0] for text, _ in pseudo_instructions()}
    assert written == {
        "li", "mv", "j", "jr", "nop", "not", "ret", "beqz", "bnez", "call", "fence",
        "la",
    }  # fmt: skip


@given(st.integers(0, 1 << 18), st.integers(0, 1 << 18), st.integers(0, (1 << 30) - 1))
@settings(max_examples=examples(30))
def test_addresses_of_labels(before: int, behind: int, base: int) -> None:
    """auipc adds its upper part to where it stands itself, addi the rest."""
    base_address = 4 * (base % ((1 << 30) - before - behind - 2))
    builder = CodeBuilder(NMP_ISA)
    builder._items += [0] * before
    for label in ("low", "high"):
        builder.la("s1", label)
    builder._items += [0] * behind
    builder.label("high")
    builder._labels["low"] = 0
    words = builder.finish(base_address).tolist()
    for place, target in ((before, 0), (before + 2, before + 4 + behind)):
        (one, upper), (two, lower) = (NMP_ISA.decode(words[place + k]) for k in (0, 1))
        assert (one.mnemonic, two.mnemonic) == ("auipc", "addi")
        assert upper["rd"] == lower["rs1"] == lower["rd"] == 9
        reached = base_address + 4 * place + (upper["imm"] << 12) + lower["imm"]
        assert reached & WORD_MASK == (base_address + 4 * target) & WORD_MASK


def test_data_words_hold_absolute_addresses() -> None:
    assert assemble(".word end\nend:", 0x8000_0000, isa=NMP_ISA).tolist() == [0x8000_0004]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nop\nfoo a0", "line 2: RV32IM + Xnmp has no instruction 'foo'"),
        ("addi a0, a0", "line 1: addi: operands 'a0, a0', expected 'addi rd, rs1, imm'"),
        ("ret a0", "line 1: ret: operands 'a0', expected 'ret'"),
        ("addi a0, a0, 5000", "line 1: addi: field imm: 5000 is outside -2048..2047"),
        ("addi a0, q7, 1", "line 1: addi: operand rs1 is 'q7', which is no register"),
        ("addi a0, a0, x", "line 1: addi: operand imm is 'x', expected a number"),
        ("li a0, 0x" + "f" * 9999, "line 1: li: operand value is '0xffffffffffffffffff'..."),
        (".word 0b" + "1" * 9999, "line 1: .word: operand value is '0b1111"),
        ("li a0, 0x100000000", "line 1: li: 4294967296 does not fit in 32 bits"),
        ("nmp_wait tlx, 1, a0", "line 1: nmp_wait: operand level is 'tlx', expected a number"),
        ("nmp_conv2d 16, zero", "line 1: nmp_conv2d: field sem: 16 is outside 0..15"),
        ("\n\n beq a0, a1, gone", "line 3: label 'gone' is used but not defined"),
        ("nop\nla a0, gone", "line 2: label 'gone' is used but not defined"),
        ("la a0, 4(a1)", "line 1: la: operands 'a0, 4(a1)', expected 'la rd, label'"),
        ("la q7, x\nx:", "line 1: la: operand rd is 'q7', which is no register"),
        (".word gone", "line 1: label 'gone' is used but not defined"),
        (".word", "line 1: .word: operand value is '', expected a number"),
        ("x:\nnop\nx:", "line 3: label 'x' is defined twice"),
        ("a0: nop", "line 1: 'a0' cannot be a label"),
        ("1a: nop", "line 1: '1a' cannot be a label"),
        ("jal ra, 3", "line 1: jal: field imm: 3 is outside -1048576..1048574, a multiple of 2"),
        ("x:\n" + "nop\n" * 1025 + "bnez a0, x", "line 1027: label 'x' is out of reach"),
    ],
)
def test_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(IsaError) as caught:
        assemble(text, isa=NMP_ISA)
    assert str(caught.value).startswith(message)


def test_misaligned_base_is_refused() -> None:
    with pytest.raises(IsaError, match="multiple of 4"):
        assemble("nop", base_address=2, isa=NMP_ISA)


def test_lines_of_many_labels() -> None:
    names = [f"l{number}" for number in range(3000)]
    text = "".join(f"{name}: " for name in names) + "j l2999"
    assert assemble(text, isa=NMP_ISA).tolist() == [NMP_ISA.encode("jal", rd=0, imm=0)]
    with pytest.raises(IsaError, match="^line 1: '' cannot be a label"):
        assemble("a: : nop", isa=NMP_ISA)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"text": None}, "assembly is a NoneType; expected a text"),
        ({"text": b"nop"}, "assembly is a bytes"),
        ({"isa": "nmp"}, "an instruction set is a str; expected an Isa"),
        ({"base_address": 1 << 40}, "code at 1099511627776: addresses are 0 to 0xffffffff"),
        ({"base_address": -4}, "code at -4: addresses are 0 to"),
        ({"base_address": 6}, "code at 0x6: the address must be a multiple of 4"),
        ({"base_address": 1.5}, "code at a float: an address is a whole number"),
        ({"base_address": None}, "code at a NoneType"),
    ],
)
def test_arguments_that_are_none(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(IsaError, match=f"^{said}"):
        assemble(**{"text": "nop", "isa": NMP_ISA, **arguments})
    if "text" not in arguments:
        with pytest.raises(IsaError, match=f"^{said}"):
            disassemble_code(**{"words": [0x13], "isa": NMP_ISA, **arguments})


@pytest.mark.parametrize(
    "words", ["x", None, np.array([1.5]), np.zeros((2, 2), np.uint32), [-1], [1 << 40], [1 << 70]]
)
def test_words_that_are_none(words: Any) -> None:
    with pytest.raises(IsaError, match=r"^(code is|words are) .*; (expected words|they are 0)"):
        disassemble_code(words, isa=NMP_ISA)
    assert disassemble_code([], isa=NMP_ISA) == "\n"
