"""What the fuzzer demands of simulators that are watched and recorded is kept by compiled programs,
and would be seen to be broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fuzzing.codes import GRAMMARS, compiled, machines
from fuzzing.looks import CoveredStores, SoundEvents

from tvm_npu.runtime.session import Session
from tvm_npu.sim.events import Events
from tvm_npu.sim.watch import Store

CASES = [(target, number) for target, found in machines().items() for number in range(len(found))]


class ForgetfulStores(CoveredStores):
    """Hears of every store as of half of its bytes."""

    def stored(self, stores: Sequence[Store]) -> None:
        super().stored([replace(one, end=(one.begin + one.end) // 2) for one in stores])


class BackwardEvents(SoundEvents):
    """Gets begin and end of events the wrong way round."""

    def record(self, events: Events) -> None:
        events.begin_cycles, events.end_cycles = events.end_cycles, events.begin_cycles
        super().record(events)


def test_every_grammar_has_machines() -> None:
    assert set(GRAMMARS) == {target for target, _ in CASES}


def run(target: str, number: int, **looks: Any) -> None:
    """In memory that holds no results yet."""
    session = Session(compiled(target, number))
    random = np.random.default_rng(0)
    (slot,) = session.program.inputs
    image = random.normal(size=(1, *slot.shape)).astype(np.float32)
    session.run_fixed([slot.scale.quantize(image, slot.element_bytes)], **looks)


@pytest.mark.parametrize(("target", "number"), CASES)
def test_compiled_programs_keep_what_is_demanded(target: str, number: int) -> None:
    run(target, number, watch=CoveredStores())
    run(target, number, events=SoundEvents())
    with pytest.raises(AssertionError, match="changed without a store"):
        run(target, number, watch=ForgetfulStores())
    with pytest.raises(AssertionError, match="ends before it begins"):
        run(target, number, events=BackwardEvents())
