"""Layers whose variables do not all find a register."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import random_tensors
from tests.codegen.nmp.simulated import simulate, small_machine
from tests.codegen.nmp.test_blocks import blocks
from tests.codegen.nmp.test_cascades import cascades, predicted
from tests.codegen.nmp.test_golden import MACHINE, PLAN, Fixed, conv
from tests.codegen.nmp.test_kept_rows import KeepingBlocks, KeepingCascades
from tests.codegen.nmp.test_wide_plans import machines, run_drawn, with_ring
from tests.examples import FILTERED, examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.graph import q_point_scales
from tvm_npu.codegen.nmp.emit import registers
from tvm_npu.codegen.nmp.emit.expressions import Variable
from tvm_npu.codegen.nmp.emit.registers import FREE, RegisterFile, RegisterPressureError
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.ops import FixedConv, FixedPool
from tvm_npu.codegen.passes.blocks import blocks_behind
from tvm_npu.codegen.passes.cascades import candidates
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.isa.builder import CodeBuilder
from tvm_npu.sim.nmp.xnmp import NMP_ISA

FEWEST = 16
"""Registers that are enough for every tree: counters and ends of its loops, the frame's own, and
temporary values of one command."""


def stores(program: Program) -> int:
    """How many words of the program store a register."""
    found = (NMP_ISA.decode(int(word)) for word in program.code)
    return sum(one is not None and one[0].mnemonic == "sw" for one in found)


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("is_block", [False, True])
@given(st.data(), st.integers(FEWEST, len(FREE)))
@settings(
    max_examples=examples(16), deadline=None,
    suppress_health_check=FILTERED,
)  # fmt: skip
def test_layers_with_few_registers_run_to_the_bit(
    is_block: bool, buffers: int, data: st.DataObject, count: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registers, "FREE", FREE[:count])
        if is_block:
            fixed = data.draw(blocks(2, with_window=True))
            assume(blocks_behind(fixed, candidates(fixed)))
            machine = data.draw(machines(buffers, sizes=(8192, 32768)))
            run_drawn(fixed, machine, KeepingBlocks(data, buffers), data)
        else:
            fixed = data.draw(cascades(1))
            assume(candidates(fixed))
            run_drawn(fixed, data.draw(machines(buffers)), KeepingCascades(data, buffers), data)
    event(f"{count} registers")


def test_a_cascade_of_more_variables_than_registers() -> None:
    """Two buffers, rows that stay and columns over TLTs: its plan is good, all registers are not
    enough."""
    graph = conv(3, 3, 3, 1)
    layer, window = graph.layers[0], FixedPool(
        "window", ("y",), ("v",), kind="max", kernel=(3, 1), stride=(2, 2), padding=(2, 0, 2, 0),
        counted_padding=(2, 0, 2, 0), shift=0, low=-32768, high=32767,
    )  # fmt: skip
    assert isinstance(layer, FixedConv)
    layer = replace(layer, weight=layer.weight[..., :2], stride=(3, 1), padding=(0, 0, 0, 1))
    fixed = replace(
        graph,
        layers=(layer, window),
        shapes={"x": (3, 11, 5), "y": (3, 3, 5), "v": (3, 3, 3)},
        outputs=("v",),
        scales=graph.scales | q_point_scales({"v": 8}),
    )
    plan = ConvPlan(
        "multicast", "KS", 1, 1, "WS", 2, 1, 2, 1, tlt_columns=2, buffers=2, keeps_rows=True,
        prediction=predicted(1.0),
    )  # fmt: skip
    program = compile_fixed(fixed, with_ring(small_machine(), 2), Fixed(plan))
    assert len(program.layers) == 1 and stores(program)
    inputs = random_tensors(fixed, 1)
    expected = run_fixed(fixed, {"x": inputs["x"][None]})["v"][0]
    np.testing.assert_array_equal(simulate(program, inputs)[0]["v"], expected)


def test_variables_are_stored_where_registers_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = conv(10, 7, 3, 9, residual=True)
    inputs = random_tensors(fixed, 1)
    expected = run_fixed(fixed, {name: value[None] for name, value in inputs.items()})["y"][0]
    cycles, words = [], []
    for count in (len(FREE), 12):
        monkeypatch.setattr(registers, "FREE", FREE[:count])
        program = compile_fixed(fixed, MACHINE, Fixed(PLAN))
        outputs, statistics = simulate(program, inputs)
        np.testing.assert_array_equal(outputs["y"], expected)
        cycles.append(statistics.cycles)
        words.append(stores(program))
    assert words[0] == 0 < words[1] and cycles[0] < cycles[1]
    monkeypatch.setattr(registers, "FREE", FREE[:7])
    with pytest.raises(EmitError, match="layer 0: more than 7 live values"):
        compile_fixed(fixed, MACHINE, Fixed(PLAN))


def test_variables_of_the_frame_are_never_stored() -> None:
    file = RegisterFile(CodeBuilder(NMP_ISA))
    frame, own = Variable("frame", 0, 9), Variable("own", 0, 9)
    file.bind(frame)
    file.begin_layer(3)
    file.bind(own)
    with pytest.raises(RegisterPressureError, match="layer 3") as raised:
        for _ in FREE:
            file.take()
    assert raised.value.held == {own}
