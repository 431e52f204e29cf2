"""Whoever looks at a fuzzed run: the paths of simulators that record events and that are watched,
held against what they promise. What they break is an AssertionError, no typed error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.runtime.session import Session
from tvm_npu.sim.events import Events
from tvm_npu.sim.watch import Store, can_be_watched

READ_EVENTS = 64
"""Of one run: each event is made from its table in Python."""


class CoveredStores:
    """A watch: no byte of DRAM changes outside of the stores that are named."""

    def begins(self, dram: NDArray[np.uint8]) -> None:
        self._dram, self._known = dram, dram.copy()

    def stored(self, stores: Sequence[Store]) -> None:
        for store in stores:
            self._known[store.within] = self._dram[store.within]
        (changed,) = np.nonzero(self._known != self._dram)
        assert not len(changed), f"byte {changed[0]} of DRAM changed without a store of {stores}"


class SoundEvents:
    """A sink: times run forward, spans lie in memories, and each event can be told in words."""

    def record(self, events: Events) -> None:
        assert (events.begin_cycles <= events.end_cycles).all(), "an event ends before it begins"
        spans = events.spans()
        assert (spans.begin >= 0).all() and (spans.begin < spans.end).all(), "a span without bytes"
        for event in events[:READ_EVENTS]:
            assert event.unit and event.what, event
        events.bytes_by_link(), events.busy_cycles(), events.wait_cycles_by_cause()


def may_watch(choice: int) -> bool:
    """Whether `looks` watches the run, if its machine can be watched."""
    return choice % 4 == 1


def looks(choice: int, session: Session) -> dict[str, Any]:
    """For `Session.run_fixed`: a fourth of all runs is recorded, another one watched."""
    if choice % 4 == 0:
        return {"events": SoundEvents()}
    if may_watch(choice) and can_be_watched(session.devices[0]):
        return {"watch": CoveredStores()}
    return {}
