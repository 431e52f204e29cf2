"""The least that layers need of a Snowflake machine's buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tvm_npu.codegen.least import Need
from tvm_npu.codegen.snowflake.plan.tiling import line
from tvm_npu.sim.snowflake.isa import LANES, WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine


@dataclass(frozen=True)
class SnowflakeNeeds:
    """Answers of `codegen.least.LeastNeeds`."""

    machine: SnowflakeMachine

    @property
    def stored_bytes(self) -> Literal[2]:
        return WORD_BYTES  # type: ignore[return-value]

    def _maps(self, words: int) -> Need:
        return Need(WORD_BYTES * words, "MBuf", self.machine.clusters.mbuf_bytes, "of a CU")

    def conv_input(
        self, window: tuple[int, int], kernel: tuple[int, int], channels: int = 1,
        stride: tuple[int, int] = (1, 1),
    ) -> Need:  # fmt: skip
        """All channels of what taps touch, and a line of results. A group of one channel may be
        depthwise, which takes a line of channels."""
        planes = LANES if channels == 1 else channels
        return self._maps(line(kernel[0] * kernel[1] * planes) + LANES)

    def conv_weight(
        self, window: tuple[int, int], kernel: tuple[int, int], channels: int = 1
    ) -> Need:
        """A bias and all weights of a filter, in mode coop; of one channel those of mode lane."""
        taps = kernel[0] * kernel[1]
        words = LANES * (taps + 2) if channels == 1 else LANES + line(taps * channels)
        return Need(WORD_BYTES * words, "WBuf", self.machine.clusters.wbuf_bytes, "of a vMAC")

    def biases(self, filters: int) -> Need:
        return Need(4, "WBuf", self.machine.clusters.wbuf_bytes, "of a vMAC")

    def dense_input(self, features: int) -> Need:
        """All inputs, and a line of results; kernels may come in parts."""
        return self._maps(line(features) + LANES)

    def padded_pixel(self, channels: int) -> Need:
        """One in each half of an MBuf."""
        return self._maps(2 * channels)

    def pool_input(self, window: tuple[int, int]) -> Need:
        """With a line of results, and what a maximum keeps between its two directions."""
        return self._maps(line(window[0] * window[1]) + line(window[1]) + LANES)
