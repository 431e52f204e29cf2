"""CodeBuilder: constants, labels and the errors that it promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_npu.sim.errors import IsaError, OutOfReachError
from tvm_npu.sim.isa.builder import REGISTERS, CodeBuilder
from tvm_npu.sim.nmp.xnmp import NMP_ISA


def run_constants(words: np.ndarray) -> int:
    """What lui / addi sequences leave in their destination."""
    value = 0
    for word in words:
        decoded = NMP_ISA.decode(int(word))
        assert decoded is not None
        instruction, operands = decoded
        if instruction.mnemonic == "lui":
            value = operands["imm"] << 12
        else:
            assert instruction.mnemonic == "addi"
            value = (value if operands["rs1"] else 0) + operands["imm"]
    return value & 0xFFFFFFFF


@given(st.integers(-(1 << 31), (1 << 32) - 1))
def test_li_makes_any_word(value: int) -> None:
    builder = CodeBuilder(NMP_ISA)
    builder.li("t0", value)
    words = builder.finish(0)
    assert len(words) <= 2
    assert run_constants(words) == value & 0xFFFFFFFF


@pytest.mark.parametrize("value", [0, 1, -1, 2047, -2048])
def test_li_of_a_small_constant_is_one_instruction(value: int) -> None:
    builder = CodeBuilder(NMP_ISA)
    builder.li(5, value)
    assert builder.position == 4


@pytest.mark.parametrize("value", [-(1 << 31) - 1, 1 << 32])
def test_li_refuses_what_no_register_holds(value: int) -> None:
    with pytest.raises(IsaError, match=str(value)):
        CodeBuilder(NMP_ISA).li(5, value)


def test_forward_and_backward_labels() -> None:
    builder = CodeBuilder(NMP_ISA)
    builder.label("start")
    builder.emit("beq", rs1="a0", rs2="zero", imm="end")
    builder.nop()
    builder.j("start")
    builder.label("end")
    builder.mv("a0", "s11")
    distances = [NMP_ISA.decode(int(w))[1]["imm"] for w in builder.finish(0x8000_0000)]
    assert distances == [12, 0, -8, 0]
    assert builder.labels == {"start": 0, "end": 12}


def test_data_words_hold_absolute_addresses() -> None:
    builder = CodeBuilder(NMP_ISA)
    builder.word("here")
    builder.word(-1)
    builder.label("here")
    assert builder.finish(0x8000_0000).tolist() == [0x8000_0008, 0xFFFF_FFFF]


@pytest.mark.parametrize("fillers", [1023, 1024])
def test_branch_reach(fillers: int) -> None:
    builder = CodeBuilder(NMP_ISA)
    builder.emit("beq", rs1=0, rs2=0, imm="far")
    for _ in range(fillers - 1):
        builder.nop()
    builder.label("far")
    if fillers == 1023:
        assert NMP_ISA.decode(int(builder.finish(0)[0]))[1]["imm"] == 4092
    else:
        with pytest.raises(OutOfReachError, match=r"'far' is out of reach.*4096") as raised:
            builder.finish(0)
        assert raised.value.labels == {"far"}


def test_errors_name_the_culprit() -> None:
    builder = CodeBuilder(NMP_ISA)
    with pytest.raises(IsaError, match="'frobnicate'"):
        builder.emit("frobnicate")
    with pytest.raises(IsaError, match="'q7'"):
        builder.emit("addi", rd="q7", rs1=0, imm=0)
    with pytest.raises(IsaError, match="shamt"):
        builder.emit("slli", rd=1, rs1=1, shamt="label")
    with pytest.raises(IsaError, match="2048"):
        builder.emit("addi", rd=1, rs1=1, imm=2048)
    builder.label("twice")
    with pytest.raises(IsaError, match="'twice'"):
        builder.label("twice")
    builder.j("nowhere")
    with pytest.raises(IsaError, match="'nowhere'"):
        builder.finish(0)
    with pytest.raises(IsaError, match="0x2"):
        builder.finish(2)


def test_register_names() -> None:
    assert REGISTERS["x31"] == REGISTERS["t6"] == 31
    assert REGISTERS["fp"] == REGISTERS["s0"] == 8
    assert REGISTERS["a7"] == 17
    assert set(REGISTERS.values()) == set(range(32))
