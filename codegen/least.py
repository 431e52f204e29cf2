"""The least that a layer needs of a machine's memories, whatever the planner: what a door asks
before it gives a layer to a machine, of machines of every kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tvm_npu.codegen.nmp.plan.traffic import least_bias_bytes
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import BIAS_BYTES, Precision
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine


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

    def conv_input(self, window: tuple[int, int], kernel: tuple[int, int]) -> Need:
        """One channel of one window, dilation included."""

    def conv_weight(self, window: tuple[int, int], kernel: tuple[int, int]) -> Need:
        """One channel of one filter."""

    def biases(self, filters: int) -> Need:
        """The biases of a group's filters."""

    def pool_input(self, window: tuple[int, int]) -> Need:
        """One channel of one window."""


@dataclass(frozen=True)
class _Nmp:
    machine: NmpMachine
    stored_bytes: int

    def conv_input(self, window: tuple[int, int], kernel: tuple[int, int]) -> Need:
        return self.pool_input(window)

    def conv_weight(self, window: tuple[int, int], kernel: tuple[int, int]) -> Need:
        needed = kernel[0] * kernel[1] * self.stored_bytes
        return Need(needed, "MB1", self.machine.memories.mb1_bytes)

    def biases(self, filters: int) -> Need:
        needed = least_bias_bytes(filters, self.machine)
        return Need(needed, "bias buffer", self.machine.memories.bias_bytes, "in each TLT")

    def pool_input(self, window: tuple[int, int]) -> Need:
        needed = window[0] * window[1] * self.stored_bytes
        return Need(needed, "MB0", self.machine.memories.mb0_bytes)


@dataclass(frozen=True)
class _Tiles:
    """A shared memory holds the tiles of all kinds together: each need is that of all."""

    machine: TileMachine
    stored_bytes: int
    accumulator_bytes: int

    def conv_input(self, window: tuple[int, int], kernel: tuple[int, int]) -> Need:
        # A residual element lies behind the IN tile.
        return self._of("input", window[0] * window[1], kernel[0] * kernel[1])

    def conv_weight(self, window: tuple[int, int], kernel: tuple[int, int]) -> Need:
        return self._of("weight", window[0] * window[1], kernel[0] * kernel[1])

    def biases(self, filters: int) -> Need:
        return Need(BIAS_BYTES, "bias memory", self.machine.memories.bias_bytes)

    def pool_input(self, window: tuple[int, int]) -> Need:
        return self._of("input", window[0] * window[1], 0)

    def _of(self, kind: str, window: int, taps: int) -> Need:
        inputs = _aligned(window * self.stored_bytes)
        if taps:
            inputs += _aligned(self.stored_bytes)
        weights = _aligned(taps * self.stored_bytes)
        memories = self.machine.memories
        if isinstance(memories, SharedMemory):
            needed = inputs + weights + _aligned(self.accumulator_bytes)
            return Need(needed, "shared memory", memories.shared_bytes)
        if kind == "input":
            return Need(inputs, "input memory", memories.input_bytes)
        return Need(weights, "weight memory", memories.weight_bytes)


def _aligned(size: int) -> int:
    return -(-size // 8) * 8


def _nmp(machine: NmpMachine, precision: Precision) -> LeastNeeds:
    return _Nmp(machine, 1 if precision == "int8" else 2)


def _tiles(machine: TileMachine, precision: Precision) -> LeastNeeds:
    return _Tiles(machine, machine.element_bytes(precision), machine.accumulator_bytes(precision))


_KINDS: dict[str, Callable[[Any, Precision], LeastNeeds]] = {"nmp": _nmp, "tiles": _tiles}


def least_needs(machine: MachineDescription, precision: Precision) -> LeastNeeds:
    """The answers for a machine of any kind."""
    return _KINDS[machine.isa](machine, precision)
