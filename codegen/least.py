"""The least that a layer needs of a machine's memories, whatever the planner: what a door asks
before it gives a layer to a machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tvm_npu.codegen.backends import backend_of
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import Precision


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
    return backend_of(machine).least_needs(machine, precision)
