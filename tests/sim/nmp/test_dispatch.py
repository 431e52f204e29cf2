"""The functions that dispatch generates."""

from __future__ import annotations

import numba

from tvm_npu.sim.compiled import device
from tvm_npu.sim.nmp import dispatch


def test_every_instruction_has_a_semantic_function() -> None:
    for instruction in dispatch.NMP_ISA.instructions:
        assert instruction.execute in dispatch.SEMANTICS, instruction.mnemonic


def test_constant_arguments_do_not_multiply_what_is_compiled() -> None:
    @device
    def inner(value: int, constant: int, last: int = 0) -> int:
        return value + 10 * constant + last

    @numba.njit
    def outer(value: int) -> int:
        return inner(value, 1) + inner(value, 2) + inner(3, value) + inner(value, 1, last=4)

    assert outer(5) == 15 + 25 + 53 + 19
    assert len(inner.overloads) == 2  # type: ignore[attr-defined]  # with and without ``last``
