"""The least that layers need of a tile machine's memories."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.least import Need
from tvm_npu.codegen.plan.loops.room import aligned
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine


@dataclass(frozen=True)
class TileNeeds:
    """`least.LeastNeeds`. A shared memory holds the tiles of all kinds together: each need is that
    of all."""

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
        inputs = aligned(window * self.stored_bytes)
        if taps:
            inputs += aligned(self.stored_bytes)
        weights = aligned(taps * self.stored_bytes)
        memories = self.machine.memories
        if isinstance(memories, SharedMemory):
            needed = inputs + weights + aligned(self.accumulator_bytes)
            return Need(needed, "shared memory", memories.shared_bytes)
        if kind == "input":
            return Need(inputs, "input memory", memories.input_bytes)
        return Need(weights, "weight memory", memories.weight_bytes)
