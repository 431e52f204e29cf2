"""Faults planted into emitted code are found, and the instruction that is named is the right one.
`scripts/mutants` plants more of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.runtime.networks import machine
from tests.verification.mutants import LIMITS, WORD_BYTES, judged, small_region
from tvm_npu.codegen.program.annotate import program_isa
from tvm_npu.runtime import session
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.isa.disassembler import disassemble
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.verification import Divergence, verify_program

COUNT = 20


def machine_called(name: str) -> MachineDescription:
    return machine() if name == "small" else load_machine(name)


@pytest.mark.parametrize("name", ["small", "setup-a", "snowflake-1cc", "zynq-7020"])
def test_the_named_instruction_is_the_changed_one_or_the_first_that_sees_it(name: str) -> None:
    verdicts = judged(machine_called(name), seed=17, count=COUNT)
    wrong = [one for one in verdicts if one.outcome not in ("named", "effect", "harmless")]
    assert not wrong
    outcomes = Counter(one.outcome for one in verdicts)
    assert outcomes["harmless"] <= COUNT // 2
    assert outcomes["named"]


@pytest.mark.parametrize("name", ["small", "setup-a", "snowflake-1cc", "zynq-7020"])
def test_a_right_program_has_no_divergence_and_a_wrong_weight_is_one(name: str) -> None:
    planned, program, inputs = small_region(machine_called(name))
    assert verify_program(program, planned, inputs) is None
    random = np.random.default_rng(3)
    found = []
    while not found or random.random() < 0.5:
        constants = bytearray(program.constants)
        constants[int(random.integers(len(constants)))] ^= 0x40
        one = verify_program(replace(program, constants=bytes(constants)), planned, inputs, LIMITS)
        if one is not None:  # padding and code of a DMA controller are constants, too
            found.append(one)
    for one in found:
        assert one.layer_number is not None
        assert planned.layers[one.layer_number].layer.name == one.layer
        if one.element is not None:
            assert one.element.found != one.element.expected
            assert one.element.tensor in planned.layers[one.layer_number].layer.outputs


def test_a_store_into_code_does_not_read_as_the_end_of_the_run() -> None:
    said = list(Divergence("stray", "c1", 0, None, trap="byte 64 of code or constants").lines())
    assert said[-1] == "written: byte 64 of code or constants"
    said = list(Divergence("trap", "c1", 0, None, trap="deadlock").lines())
    assert said[-1] == "the run ends: deadlock"


def test_both_values_and_the_tile_are_told() -> None:
    """The first layer of setup-a requantizes with another shift: every value is twice as large."""
    planned, program, inputs = small_region(load_machine("setup-a"))
    layer, part = planned.layers[0].layer, program.layers[0].code[0]
    isa = program_isa(program)
    rows = range(part.begin // WORD_BYTES, part.end // WORD_BYTES)
    texts = {row: disassemble(int(program.code[row]), isa) for row in rows}
    row = next(row for row, text in texts.items() if text.startswith("tset shift,"))
    code = program.code.copy()
    code[row] = isa.encode("tset", **{**isa.decode(int(code[row]))[1], "imm": layer.shift - 1})
    found = verify_program(replace(program, code=code), planned, inputs)
    assert found is not None and found.kind == "value" and found.layer == layer.name
    one = found.element
    assert one is not None and found.place is not None
    assert found.place.instruction.startswith("tstore")
    assert min(2 * one.expected, layer.high) - one.found in (-1, 0, 1)
    assert all(first <= at < end for at, (first, end) in zip(one.index, found.box, strict=True))
    text = "\n".join(found.lines())
    assert f"is {one.found} " in text and f"has {one.expected} " in text


def test_a_simulator_that_says_nothing_of_its_stores_still_tells_the_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned, program, inputs = small_region(load_machine("setup-a"))
    monkeypatch.setattr("tvm_npu.verification.run.can_be_watched", lambda simulator: False)
    assert verify_program(program, planned, inputs) is None
    last = program.layers[-1].code[0]
    code = program.code.copy()
    code[last.begin // WORD_BYTES : last.end // WORD_BYTES - 1] = code[last.begin // WORD_BYTES]
    found = verify_program(replace(program, code=code), planned, inputs)
    assert found is not None and found.kind == "layer" and found.place is None
    assert found.layer == program.layers[-1].name


def test_a_watched_run_computes_the_same() -> None:
    """Bits, cycles and statistics of a run that somebody looks at from store to store."""

    class Silent:
        calls = 0

        def begins(self, dram: object) -> None:
            pass

        def stored(self, stores: object) -> None:
            self.calls += 1

    for name in ("small", "setup-a", "snowflake-1cc", "zynq-7020"):
        planned, program, inputs = small_region(machine_called(name))
        arrays = [inputs[one] for one in planned.fixed.inputs]
        plain, looked = session.Session(program), session.Session(program)
        watch = Silent()
        wanted = plain.run_fixed(arrays)
        for a, b in zip(wanted, looked.run_fixed(arrays, watch=watch), strict=True):
            assert np.array_equal(a, b)
        assert plain.statistics == looked.statistics
        assert watch.calls >= len(program.layers)
