"""Runs of a region on the simulator, with the events of the first one."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm_npu.codegen.backends import images_of_program
from tvm_npu.codegen.compile import Generated
from tvm_npu.codegen.graph_bound import GraphBound
from tvm_npu.codegen.program.format import Program, TensorSlot
from tvm_npu.codegen.program.tables import slots_by_tensor
from tvm_npu.report.dram import live_bytes
from tvm_npu.runtime.session import Session
from tvm_npu.sim.event_table import MOST_EVENTS, EventsError
from tvm_npu.sim.events import EventLog, Events
from tvm_npu.sim.limits import DEFAULT, Limits
from tvm_npu.sim.statistics import RunStatistics

MOST_KEPT_BYTES = 1 << 29
"""Of the events of all regions of a model."""


class ManyEventsWarning(UserWarning):
    """A report without what its region's units did when."""


class EventRoom:
    """Events that the regions of a model may keep together, and their bytes."""

    def __init__(self, events: int = 2 * MOST_EVENTS, size_bytes: int = MOST_KEPT_BYTES) -> None:
        self.events = self.left = events
        self.bytes = self.bytes_left = size_bytes

    def take(self, events: Events) -> None:
        """EventsError where there is no room for these."""
        count, size = len(events), events.table.nbytes
        if size > self.bytes_left:
            raise EventsError(
                f"its {count:,} events take {size:,} bytes: the regions of a model keep at most "
                f"{self.bytes:,} together, and {self.bytes_left:,} are left; a machine with larger "
                "memories, whose tiles are fewer, has fewer events"
            )
        if count > self.left:
            raise EventsError(
                f"its {count:,} events do not fit: the regions of a model keep at most "
                f"{self.events:,} together, and {self.left:,} are left; a machine with larger "
                "memories, whose tiles are fewer, has fewer events"
            )
        self.left -= count
        self.bytes_left -= size


class RegionRun:
    """A region's session; keeps the statistics of every run, which may hold several images, and,
    if ``records``, what its units did in the first image of the first run. ``live_bytes`` are those
    of `report.dram`, a layer each (none: not known); ``bound`` is that of `Backend.graph_bound`;
    ``outputs`` are where each layer's outputs lie; ``room`` is shared by the regions of a model."""

    def __init__(
        self,
        symbol: str,
        program: Program,
        timing: bool,
        records: bool = False,
        limits: Limits = DEFAULT,
        live_bytes: tuple[int, ...] = (),
        bound: GraphBound | None = None,
        outputs: tuple[tuple[TensorSlot, ...], ...] = (),
        room: EventRoom | None = None,
    ) -> None:
        self.symbol, self.live_bytes, self.outputs = symbol, live_bytes, outputs
        self.bound = bound
        self.session = Session(program, timing=timing, limits=limits)
        self.runs: list[RunStatistics] = []
        self.events: Events | None = None
        self._records, self._room = records, room or EventRoom()

    @staticmethod
    def of(
        symbol: str,
        generated: Generated,
        timing: bool,
        records: bool = False,
        limits: Limits = DEFAULT,
        room: EventRoom | None = None,
    ) -> RegionRun:
        """Of a region that becomes words now."""
        program = generated.program()
        live = live_bytes(generated.planned, program)
        slots = slots_by_tensor(program, generated.planned.storage)
        outputs = tuple(
            tuple(slots[tensor] for tensor in one.layer.outputs)
            for one in generated.planned.layers
        )
        bound = generated.graph_bound
        return RegionRun(symbol, program, timing, records, limits, live, bound, outputs, room)

    def run(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[Any]:
        log = EventLog() if self._records and self.events is None else None
        outputs: list[Any] | None = None
        try:
            outputs = self.session.run(list(arrays), events=log)
            if log is not None and log.runs:
                self._room.take(log.runs[0])
        except EventsError as error:
            text = f"region {self.symbol}: {error}; its report has no timelines"
            warnings.warn(text, ManyEventsWarning, stacklevel=2)
            self._records, log = False, None
        if outputs is None:  # the error holds the table no more
            outputs = self.session.run(list(arrays))
        if log is not None and log.runs:
            self.events = log.runs[0]
        last = self.session.statistics
        if last is not None:
            self.runs.append(last)
        return outputs

    @property
    def bound_cycles(self) -> float | None:
        """Below which no plan gets in the first inference, whatever clusters do with its images:
        those of the device that has most, in as few runs of a program as there can be. What is
        loaded for a run stays for no other. None where nobody knows."""
        machine = self.session.machine
        images = -(-self.runs[0].runs // machine.device_count)
        runs = -(-images // images_of_program(machine))
        return None if self.bound is None else self.bound.cycles_of(images, runs)

    @property
    def devices_used(self) -> int:
        """Devices that ran beside each other in the first inference."""
        session = self.session
        together = session.program.batch * session.machine.device_count
        rounds = -(-self.runs[0].runs // together)
        return -(-self.runs[0].runs // (session.program.batch * rounds))
