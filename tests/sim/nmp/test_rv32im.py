"""RV32IM on the simulated core against Python integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.sim.nmp.programs import BASE, DATA, EXIT, read, run, simulator, small_machine
from tests.sim.nmp.rv32im_model import BRANCH, IMMEDIATE, LOAD, MASK, REGISTER, STORE, signed
from tvm_npu.sim.nmp.columns import BIAS_WINDOW, MB0_WINDOW, MB1_WINDOW
from tvm_npu.sim.nmp.rv32im import RV32IM
from tvm_npu.sim.nmp.simulator import NmpSimulator
from tvm_npu.sim.nmp.traps import TrapCode
from tvm_npu.sim.traps import Trap

CORNERS = (0, 1, 2, 31, 32, 33, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, MASK, MASK - 1, 0xFFFF)
words = st.sampled_from(CORNERS) | st.integers(0, MASK)
pairs = st.lists(st.tuples(words, words), min_size=1, max_size=64)
RESULTS = DATA + 0x8000

FOR_EACH_PAIR = """
    li s0, {data}
    li s1, {results}
    lw s2, 0(s0)            # pairs
next: lw t0, 4(s0)
    lw t1, 8(s0)
    {body}
    addi s0, s0, 8
    addi s1, s1, {size}
    addi s2, s2, -1
    bnez s2, next
"""


def over_pairs(body: str, results: int) -> NmpSimulator:
    text = FOR_EACH_PAIR.format(data=DATA, results=RESULTS, body=body, size=4 * results)
    return simulator(text + EXIT)


def run_pairs(found: NmpSimulator, cases: list[tuple[int, int]], results: int) -> np.ndarray:
    found.write(DATA, np.array([len(cases), *np.ravel(cases)], np.uint32))
    found.run(BASE)
    return read(found, RESULTS, (len(cases), results), np.uint32)


def test_every_instruction_of_the_table_is_tested_here() -> None:
    tested = {*REGISTER, *IMMEDIATE, *BRANCH, *LOAD, *STORE}
    others = {"lui", "auipc", "jal", "jalr", "fence", "ecall", "ebreak"}
    assert {instruction.mnemonic for instruction in RV32IM} == tested | others


ARITHMETIC = over_pairs(
    "".join(f"{name} t2, t0, t1\nsw t2, {4 * k}(s1)\n" for k, name in enumerate(REGISTER)),
    len(REGISTER),
)


@given(pairs)
@example([(a, b) for a in CORNERS for b in CORNERS])
@settings(deadline=None)
def test_register_arithmetic(cases: list[tuple[int, int]]) -> None:
    found = run_pairs(ARITHMETIC, cases, len(REGISTER))
    for (a, b), row in zip(cases, found.tolist(), strict=True):
        for (name, model), value in zip(REGISTER.items(), row, strict=True):
            assert value == model(a, b) & MASK, (name, hex(a), hex(b))


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("div", 7, 0, -1), ("divu", 7, 0, MASK), ("rem", 7, 0, 7), ("remu", 7, 0, 7),
        ("div", 0x8000_0000, MASK, 0x8000_0000), ("rem", 0x8000_0000, MASK, 0),
        ("div", -7, 2, -3), ("rem", -7, 2, -1), ("div", 7, -2, -3), ("rem", 7, -2, 1),
        ("divu", 0x8000_0000, MASK, 0), ("remu", 0x8000_0000, MASK, 0x8000_0000),
        ("mulh", 0x8000_0000, 0x8000_0000, 0x4000_0000), ("mulhu", MASK, MASK, MASK - 1),
        ("mulhsu", MASK, MASK, MASK), ("sra", 0x8000_0000, 33, 0xC000_0000),
    ],
)  # fmt: skip
def test_corners_by_the_manual(name: str, a: int, b: int, expected: int) -> None:
    found = run_pairs(ARITHMETIC, [(a & MASK, b & MASK)], len(REGISTER))
    assert found[0, list(REGISTER).index(name)] == expected & MASK


BRANCHES = over_pairs(
    "".join(
        f"li t2, 1\n{name} t0, t1, over_{name}\nli t2, 0\nover_{name}: sw t2, {4 * k}(s1)\n"
        for k, name in enumerate(BRANCH)
    ),
    len(BRANCH),
)


@given(pairs)
@example([(a, b) for a in CORNERS for b in CORNERS])
@settings(deadline=None)
def test_branches(cases: list[tuple[int, int]]) -> None:
    found = run_pairs(BRANCHES, cases, len(BRANCH))
    for (a, b), row in zip(cases, found.tolist(), strict=True):
        for (name, model), value in zip(BRANCH.items(), row, strict=True):
            assert value == int(model(a, b)), (name, hex(a), hex(b))


immediates = st.sampled_from((-2048, -1, 0, 1, 2047)) | st.integers(-2048, 2047)


@given(st.lists(st.tuples(words, immediates, st.integers(0, 31)), min_size=1, max_size=12))
@settings(max_examples=examples(40), deadline=None)
def test_immediate_arithmetic(cases: list[tuple[int, int, int]]) -> None:
    lines, expected = [f"li s1, {DATA}"], []
    for a, imm, shamt in cases:
        lines.append(f"li t0, {a}")
        for name, model in IMMEDIATE.items():
            operand = shamt if name in ("slli", "srli", "srai") else imm
            lines += [f"{name} t1, t0, {operand}", "sw t1, 0(s1)", "addi s1, s1, 4"]
            expected.append(model(a, operand) & MASK)
    found, _ = run("\n".join(lines) + "\n" + EXIT)
    assert read(found, DATA, len(expected), np.uint32).tolist() == expected


@given(st.integers(0, (1 << 20) - 1), st.integers(0, (1 << 20) - 1))
@settings(max_examples=examples(25), deadline=None)
def test_upper_immediates(one: int, two: int) -> None:
    found, _ = run(
        f"lui t0, {one}\nauipc t1, {two}\nli s1, {DATA}\nsw t0, 0(s1)\nsw t1, 4(s1)\n" + EXIT
    )
    assert read(found, DATA, 2, np.uint32).tolist() == [
        one << 12,
        (BASE + 4 + (two << 12)) & MASK,
    ]


def test_jumps_link_and_clear_bit_zero() -> None:
    found, _ = run(
        f"""
        li s1, {DATA}           # 2 instructions or 1: labels give the addresses
        jal t0, one
    after_one: ebreak
    one: lw t1, 0(s1)
        jalr t2, 1(t1)          # odd: bit 0 is cleared
    after_two: ebreak
    two: sw t0, 4(s1)
        sw t2, 8(s1)
        lw t1, 12(s1)
        jalr t1, 0(t1)          # rd = rs1: the target is the old value
    after_three: ebreak
    three: sw t1, 16(s1)
        jal zero, end
        ebreak
    end: sw zero, 20(s1)
        {EXIT}
        """,
        data={DATA: np.array([BASE + 24, 0, 0, BASE + 44, 0, 7], np.uint32)},
    )
    values = read(found, DATA, 6, np.uint32).tolist()
    assert values == [BASE + 24, BASE + 8, BASE + 20, BASE + 44, BASE + 40, 0]


def test_backward_jal_and_function_call() -> None:
    found, _ = run(
        f"""
        li s1, {DATA}
        j start
    double: add a0, a0, a0
        ret
    start: li a0, 21
        call double
        sw a0, 0(s1)
        {EXIT}
        """
    )
    assert read(found, DATA, 1, np.int32)[0] == 42


def test_x0_stays_zero() -> None:
    found, _ = run(
        f"""
        li s1, {DATA}
        li zero, 5
        lui zero, 7
        auipc zero, 7
        mul zero, s1, s1
        lw zero, 0(s1)
        jal zero, next
    next: sw zero, 4(s1)
        {EXIT}
        """,
        data={DATA: np.array([-1, -1], np.int32)},
    )
    assert read(found, DATA, 2, np.int32).tolist() == [-1, 0]


def test_arguments_and_core_numbers() -> None:
    machine = small_machine(2, 3)
    found = simulator(
        f"slli t0, a0, 3\nli s1, {DATA}\nadd s1, s1, t0\nsw a0, 0(s1)\nsw a3, 4(s1)\n" + EXIT,
        machine,
    )
    found.run(BASE, {13: -9})
    assert read(found, DATA, (6, 2), np.int32).tolist() == [[core, -9] for core in range(6)]
    found = simulator("mv a0, a3\nli a7, 93\necall", machine)
    assert found.run(BASE, {13: -9}, cores=2)[1] == [-9, -9]


WINDOWS = {DATA: "DRAM", MB0_WINDOW: "MB0", MB1_WINDOW: "MB1", BIAS_WINDOW: "bias"}
accesses = st.tuples(
    st.sampled_from([*LOAD, *STORE]), st.sampled_from(list(WINDOWS)), st.integers(0, 63), words
)


@given(st.lists(accesses, min_size=1, max_size=40))
@settings(max_examples=examples(60), deadline=None)
def test_loads_and_stores(sequence: list[tuple[str, int, int, int]]) -> None:
    """Bytes of every memory a core sees, little-endian, sign- and zero-extended."""
    memories = {window: bytearray(64) for window in WINDOWS}
    lines, expected = [f"li s1, {RESULTS}"], []
    for window in WINDOWS:  # scratchpads keep their content between runs, but not machines
        lines.append(f"li s2, {window}")
        lines += [f"sw zero, {4 * k}(s2)" for k in range(16)]
    for name, window, place, value in sequence:
        size = STORE[name] if name in STORE else LOAD[name][0]
        at = place // size * size
        lines.append(f"li s2, {window + 32}")
        memory = memories[window]
        if name in STORE:
            lines += [f"li t0, {value}", f"{name} t0, {at - 32}(s2)"]
            memory[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
        else:
            lines += [f"{name} t0, {at - 32}(s2)", "sw t0, 0(s1)", "addi s1, s1, 4"]
            loaded = int.from_bytes(memory[at : at + size], "little", signed=LOAD[name][1])
            expected.append(loaded & MASK)
    found, _ = run("\n".join(lines) + "\n" + EXIT)
    assert read(found, RESULTS, len(expected), np.uint32).tolist() == expected
    assert read(found, DATA, 64, np.uint8).tobytes() == memories[DATA]


@pytest.mark.parametrize("name", [*LOAD, *STORE])
@pytest.mark.parametrize("window", list(WINDOWS))
def test_misaligned_and_outside(name: str, window: int) -> None:
    size = STORE[name] if name in STORE else LOAD[name][0]
    machine = small_machine()
    end = {
        DATA: BASE + (1 << 18),
        MB0_WINDOW: MB0_WINDOW + machine.memories.mb0_bytes,
        MB1_WINDOW: MB1_WINDOW + machine.memories.mb1_bytes,
        BIAS_WINDOW: BIAS_WINDOW + machine.memories.bias_bytes,
    }[window]
    run(f"li t0, {end - size}\n{name} t1, 0(t0)\n" + EXIT, machine)  # the last one is inside
    cases = [(end, TrapCode.SCALAR_ACCESS, f"access of {size} bytes at {end:#x}")]
    if size > 1:
        cases.append((window + 1, TrapCode.MISALIGNED_ACCESS, f"{window + 1:#x}"))
    for address, code, message in cases:
        with pytest.raises(Trap) as caught:
            run(f"li t0, {address - 4}\n{name} t1, 4(t0)\n" + EXIT, machine)
        assert caught.value.code == code
        assert message in str(caught.value) and f"({name} t1, 4(t0))" in str(caught.value)


@pytest.mark.parametrize("address", [0, 4, BASE - 4, MB0_WINDOW - 4, 0xFFFF_FFFC])
def test_unmapped_addresses(address: int) -> None:
    with pytest.raises(Trap, match=f"access of 4 bytes at {address:#x}, outside every memory"):
        run(f"li t0, {address}\nlw t1, 0(t0)\n" + EXIT)


def test_address_wraps_around_32_bits() -> None:
    found, _ = run(f"li t0, {DATA - 8 + 2048}\nli t1, 77\nsw t1, -2040(t0)\n" + EXIT)
    assert read(found, DATA, 1, np.int32)[0] == 77
    with pytest.raises(Trap, match="at 0x4, outside"):
        run("li t0, -4\nlw t1, 8(t0)\n" + EXIT)


register = st.integers(0, 31)
steps = st.tuples(st.sampled_from([*REGISTER, *IMMEDIATE]), register, register, register,
                  immediates)  # fmt: skip


@given(st.lists(words, min_size=32, max_size=32), st.lists(steps, max_size=60))
@settings(max_examples=examples(60), deadline=None)
def test_straight_line_programs(
    start: list[int], program: list[tuple[str, int, int, int, int]]
) -> None:
    """All registers after a random sequence of arithmetic, x0 and rd = rs included."""
    model = [0, *start[1:]]
    lines = [f"li x{number}, {start[number]}" for number in range(1, 32)]
    for name, rd, one, two, imm in program:
        if name in REGISTER:
            lines.append(f"{name} x{rd}, x{one}, x{two}")
            value = REGISTER[name](model[one], model[two])
        else:
            operand = imm & 31 if name in ("slli", "srli", "srai") else imm
            lines.append(f"{name} x{rd}, x{one}, {operand}")
            value = IMMEDIATE[name](model[one], operand)
        if rd:
            model[rd] = value & MASK
    found, statistics = simulator("\n".join(lines) + "\nebreak"), None
    with pytest.raises(Trap, match="ebreak"):
        statistics = found.run(BASE)
    assert statistics is None
    assert [int(value) & MASK for value in found._state.regs[0]] == model
    assert signed(model[1]) == found._state.regs[0, 1]


def test_polling_another_core_through_dram() -> None:
    """A core that spins on a word sees what another core stores there."""
    machine = small_machine(2, 2)
    found, _ = run(
        f"""
        li s1, {DATA}
        li t1, 3
        beq a0, t1, writer
    poll: lw t0, 0(s1)
        beqz t0, poll
        j done
    writer: li t2, 500
    later: addi t2, t2, -1
        bnez t2, later
        sw t1, 0(s1)
    done: {EXIT}
        """,
        machine,
        budget=200_000,
    )
    assert read(found, DATA, 1, np.int32)[0] == 3
