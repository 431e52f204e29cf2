"""The least that a layer needs of a machine's memories, whatever the planner: what a door asks
before it gives a layer to a machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, cast

from tvm_npu.codegen.backends import backend_of
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import Precision

DRAM = "DRAM"
Questions = dict[tuple[str, tuple[Any, ...]], bool]
"""Names of `LeastNeeds`, or `DRAM`, with their arguments; and whether what is needed fits."""
_ASKED: ContextVar[Questions | None] = ContextVar("asked", default=None)


@dataclass(frozen=True)
class Need:
    """``needed`` bytes of the memory called ``memory``, which has ``available``; ``where`` says of
    which unit, if there are several."""

    needed: int
    memory: str
    available: int
    where: str = ""

    @property
    def fits(self) -> bool:
        return self.needed <= self.available


class LeastNeeds(Protocol):
    """Answers for one machine and precision. Windows and kernels are (rows, columns)."""

    @property
    def stored_bytes(self) -> int:
        """Of an element outside of the chip."""

    def conv_input(
        self, window: tuple[int, int], kernel: tuple[int, int], channels: int = 1,
        stride: tuple[int, int] = (1, 1),
    ) -> Need:  # fmt: skip
        """One ``window``, dilation included, or what the taps of its ``kernel`` read: of one
        channel, or of all ``channels`` of a group where partial sums cannot be kept."""

    def conv_weight(
        self, window: tuple[int, int], kernel: tuple[int, int], channels: int = 1
    ) -> Need:
        """One filter, likewise."""

    def biases(self, filters: int) -> Need:
        """The biases of a group's filters."""

    def dense_input(self, features: int) -> Need:
        """Of a fully connected layer: one input, or all where partial sums cannot be kept."""

    def padded_pixel(self, channels: int) -> Need:
        """What a padding layer takes at a time: an element, or all channels of a pixel."""

    def pool_input(self, window: tuple[int, int]) -> Need:
        """One channel of one window."""


def least_needs(machine: MachineDescription, precision: Precision) -> LeastNeeds:
    """The answers for a machine of any kind."""
    found = backend_of(machine).least_needs(machine, precision)
    asked = _ASKED.get()
    return found if asked is None else cast(LeastNeeds, _Asked(found, asked))


def dram_need(machine: MachineDescription, precision: Precision, elements: int) -> Need:
    """``elements`` that lie in the memory outside of the chip together."""
    stored_bytes = backend_of(machine).least_needs(machine, precision).stored_bytes
    need = Need(elements * stored_bytes, DRAM, machine.dram.capacity_bytes)
    asked = _ASKED.get()
    if asked is not None:
        asked[DRAM, (elements,)] = need.fits
    return need


@contextmanager
def asked_needs() -> Iterator[Questions]:
    """What is asked of `least_needs` and `dram_need` meanwhile, with whether it fits."""
    asked: Questions = {}
    token = _ASKED.set(asked)
    try:
        yield asked
    finally:
        _ASKED.reset(token)


def other_answer(
    asked: Questions, machine: MachineDescription, precision: Precision
) -> tuple[str, tuple[Any, ...]] | None:
    """The first question that ``machine`` answers otherwise."""
    needs = backend_of(machine).least_needs(machine, precision)
    for (name, arguments), fits in asked.items():
        if name == DRAM:
            need = dram_need(machine, precision, *arguments)
        else:
            need = getattr(needs, name)(*arguments)
        if need.fits != fits:
            return name, arguments
    return None


class _Asked:
    """Answers of ``needs``, which are written down."""

    def __init__(self, needs: LeastNeeds, asked: Questions) -> None:
        self._needs, self._asked = needs, asked

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._needs, name)
        if not callable(found):
            return found

        def ask(*arguments: Any) -> Need:
            need: Need = found(*arguments)
            self._asked[name, arguments] = need.fits
            return need

        return ask
