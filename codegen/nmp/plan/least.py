"""The least that layers need of an NMP's memories."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.least import Need
from tvm_npu.codegen.nmp.plan.traffic import least_bias_bytes
from tvm_npu.sim.nmp.machine import NmpMachine


@dataclass(frozen=True)
class NmpNeeds:
    """`least.LeastNeeds`."""

    machine: NmpMachine
    stored_bytes: int

    def conv_input(
        self, window: tuple[int, int], kernel: tuple[int, int], channels: int = 1,
        stride: tuple[int, int] = (1, 1),
    ) -> Need:  # fmt: skip
        """Rows between those that a dilated kernel reads can stay outside, at stride 1."""
        return self.pool_input((kernel[0] if stride[0] == 1 else window[0], window[1]))

    def conv_weight(
        self, window: tuple[int, int], kernel: tuple[int, int], channels: int = 1
    ) -> Need:
        needed = kernel[0] * kernel[1] * self.stored_bytes
        return Need(needed, "MB1", self.machine.memories.mb1_bytes)

    def biases(self, filters: int) -> Need:
        needed = least_bias_bytes(filters, self.machine)
        return Need(needed, "bias buffer", self.machine.memories.bias_bytes, "in each TLT")

    def dense_input(self, features: int) -> Need:
        return self.pool_input((1, 1))

    def padded_pixel(self, channels: int) -> Need:
        return self.pool_input((1, 1))

    def pool_input(self, window: tuple[int, int]) -> Need:
        needed = window[0] * window[1] * self.stored_bytes
        return Need(needed, "MB0", self.machine.memories.mb0_bytes)
