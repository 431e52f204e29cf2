"""Sessions of programs for tile machines: elements stored wider than they are, and traps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.codegen.tiles.tile_cases import AnyPlan
from tests.runtime.networks import MACS, network
from tvm_npu.codegen.compile import CompileOptions, compile_fixed, fixed_graph
from tvm_npu.codegen.errors import ProgramError
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.runtime.errors import RunError
from tvm_npu.runtime.session import Session
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.tiles.isa import TILE_ISA
from tvm_npu.sim.tiles.traps import TileTrapCode
from tvm_npu.sim.traps import Trap

SETUP_A = load_machine("setup-a")
TYPES = {"int8": np.int8, "int16": np.int16}


def compiled(precision: Any, seed: int = 3) -> tuple[Program, FixedGraph]:
    graph, samples = network()
    ranges = calibrate(graph, [{"x": samples, "y": samples[::-1]}])
    fixed = fixed_graph(graph, ranges, SETUP_A, CompileOptions(precision=precision))
    return compile_fixed(fixed, SETUP_A, AnyPlan(seed)), fixed


@pytest.mark.parametrize("precision", ["int8", "int16"])
def test_a_network_equals_the_reference(precision: str) -> None:
    """All tensors, in a batch of two, in four bytes an element."""
    program, fixed = compiled(precision)
    program = Program.from_bytes(program.to_bytes())
    session = Session(program)
    low, high = np.iinfo(TYPES[precision]).min, np.iinfo(TYPES[precision]).max
    x = np.random.default_rng(1).integers(low, high, (2, 3, 12, 12), endpoint=True)
    inputs = {"x": x.astype(TYPES[precision]), "y": x[::-1].astype(TYPES[precision])}
    expected = run_fixed(fixed, inputs)
    found = session.run_fixed([inputs[slot.name] for slot in program.inputs])
    for slot, values in zip(program.outputs, found, strict=True):
        assert values.dtype == TYPES[precision]
        np.testing.assert_array_equal(values, expected[slot.name])
    assert all(slot.stored_bytes == 4 for slot in (*program.inputs, *program.outputs))
    for slot in (*program.inputs, *program.outputs):
        np.testing.assert_array_equal(session.read_intermediate(slot.name), expected[slot.name][-1])
    statistics = session.statistics
    assert statistics is not None
    assert (statistics.machine, statistics.runs, statistics.macs) == ("setup-a", 2, 2 * MACS)
    assert statistics.cycles > 0 and len(statistics.layers) == len(program.layers)
    assert sum(layer.macs for layer in statistics.layers) == 2 * MACS


def test_values_do_not_depend_on_timing_and_runs_add_up() -> None:
    program, _ = compiled("int8")
    x = np.random.default_rng(2).integers(-128, 127, (1, 3, 12, 12)).astype(np.int8)
    timed, untimed = Session(program), Session(program, timing=False)
    one = timed.run_fixed([x, x])
    other = untimed.run_fixed([x, x])
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)
    first = timed.statistics
    timed.run_fixed([x, x])
    total = timed.total_statistics
    assert first is not None and total is not None and untimed.statistics is not None
    assert timed.statistics == first
    assert (total.runs, total.cycles) == (2, 2 * first.cycles)
    assert untimed.statistics.cycles == 0
    assert untimed.statistics.loaded_bytes == first.loaded_bytes


def test_float_runs_quantize() -> None:
    program, fixed = compiled("int16")
    _, samples = network()
    found = Session(program).run([samples[:1], samples[:1]])
    assert all(values.dtype == np.float32 for values in found)
    scale = 2.0 ** -fixed.q_points[program.outputs[0].name]
    assert np.all(found[0] / scale == np.round(found[0] / scale)) and np.any(found[0])


def with_code(program: Program, text: str) -> Program:
    """The program with ``text`` in front of its code."""
    code = np.concatenate([assemble(text, isa=TILE_ISA), program.code])
    added = len(code) - len(program.code)
    debug = np.concatenate([np.repeat(program.debug[:1], added), program.debug])
    sizes = {s: replace(v, size_bytes=4 * len(code)) if s.value == "code" else v
             for s, v in program.segments.items()}  # fmt: skip
    return replace(program, code=code, debug=debug, segments=sizes, layers=(), images=())


def test_a_trap_comes_out_and_the_session_stays_usable() -> None:
    program, _ = compiled("int8")
    x = np.zeros((1, 3, 12, 12), np.int8)
    debug = program.debug.copy()
    debug["layer"] = -1
    session = Session(with_code(replace(program, debug=debug), "tfill"))
    for _ in range(2):
        with pytest.raises(Trap, match=r"instruction 0 \(tfill\): OUT_CHANNELS is 0") as caught:
            session.run_fixed([x, x])
        assert caught.value.code == TileTrapCode.BAD_REGISTER
    with pytest.raises(RunError, match="takes 2 inputs, got 1"):
        session.run_fixed([x])


def damaged(program: Program, code: np.ndarray) -> Program:
    return replace(program, code=code)


def test_tile_programs_are_checked() -> None:
    program, _ = compiled("int8")
    code = program.code.copy()
    code[5] = 0xFFFF_FFFF
    with pytest.raises(ProgramError, match="no instruction is 0xffffffff at 5, expected none"):
        damaged(program, code).to_bytes()
    code = program.code.copy()
    code[-1] = TILE_ISA.encode("tset", creg=0, imm=0)
    with pytest.raises(ProgramError, match=r"last word of the code is .*expected 12 \(tend\)"):
        damaged(program, code).to_bytes()
    slot = replace(program.inputs[0], stored_bytes=1)
    with pytest.raises(ProgramError, match="stored size of an element of tensor '.' is 1, exp.* 4"):
        replace(program, inputs=(slot, *program.inputs[1:])).to_bytes()
    records = np.zeros(1, program.relocations.dtype)
    with pytest.raises(ProgramError, match="relocations for isa 'tiles' is 1, expected 0"):
        replace(program, relocations=records).to_bytes()
