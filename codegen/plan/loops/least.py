"""The least that layers need of the memories of a `LoopMachine`."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.least import Need
from tvm_npu.codegen.plan.loops.machine import LoopMachine
from tvm_npu.codegen.plan.loops.room import aligned, memory_needs
from tvm_npu.sim.machine_parts import BIAS_BYTES


@dataclass(frozen=True)
class LoopNeeds:
    """`least.LeastNeeds`. A shared memory holds the tiles of all kinds together: each need is that
    of all."""

    machine: LoopMachine
    stored_bytes: int
    accumulator_bytes: int

    def conv_input(
        self, window: tuple[int, int], kernel: tuple[int, int], channels: int = 1,
        stride: tuple[int, int] = (1, 1),
    ) -> Need:  # fmt: skip
        # A residual element lies behind the IN tile.
        return self._of("input", window[0] * window[1], kernel[0] * kernel[1])

    def conv_weight(
        self, window: tuple[int, int], kernel: tuple[int, int], channels: int = 1
    ) -> Need:
        return self._of("weight", window[0] * window[1], kernel[0] * kernel[1])

    def biases(self, filters: int) -> Need:
        return Need(BIAS_BYTES, "bias memory", self.machine.bias_bytes)

    def dense_input(self, features: int) -> Need:
        return self._of("input", 1, 1)

    def padded_pixel(self, channels: int) -> Need:
        return self.pool_input((1, 1))

    def pool_input(self, window: tuple[int, int]) -> Need:
        return self._of("input", window[0] * window[1], 0)

    def _of(self, kind: str, window: int, taps: int) -> Need:
        inputs = aligned(window * self.stored_bytes)
        if taps:
            inputs += aligned(self.stored_bytes)
        weights = aligned(taps * self.stored_bytes)
        sums = aligned(self.accumulator_bytes)
        needs = memory_needs(self.machine.memories, inputs, weights, sums)
        memory, needed, available = needs[0] if kind == "input" or len(needs) == 1 else needs[1]
        return Need(needed, memory, available)
