"""What a PL-330 and the memories behind it cost: a section of a machine file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from tvm_npu.sim.machine_parts import Cycles, Rate


class DmacTiming(BaseModel):
    """A DMA controller with `channels` channels between DDR and an on-chip memory.

    All cycles are of one clock, whichever the machine counts in. The thread of a channel issues
    one instruction after another; all channels share the unit that executes them, one instruction
    in `instruction_cycles`, round-robin among those that are ready. Starting a channel costs
    `start_cycles`. A line of `line_bytes` of program that is not among the `cache_lines` that are
    kept takes `line_cycles` to come.

    A burst keeps its memory for `burst_cycles` + bytes / bytes_per_cycle, and DDR for
    `jump_cycles` more when it does not continue the channel's last burst there (loads and stores
    count apart). What is loaded from DDR arrives `ddr_latency_cycles` later. A channel loads ahead
    as far as its `fifo_bytes` and the `store_queue` stores that may wait allow.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    channels: Annotated[int, Field(ge=1, le=8)] = 8
    events: Annotated[int, Field(ge=1, le=32)] = 16
    bus_bytes: Literal[1, 2, 4, 8, 16] = 8
    fifo_bytes: Annotated[int, Field(ge=16, le=1 << 16)] = 1024
    store_queue: Annotated[int, Field(ge=1, le=64)] = 16
    program_bytes: Annotated[int, Field(ge=64, le=1 << 22)] = 1 << 16
    line_bytes: Annotated[int, Field(ge=4, le=256)] = 16
    cache_lines: Annotated[int, Field(ge=1, le=1024)] = 8
    start_cycles: Cycles = 100
    instruction_cycles: Cycles = 1
    line_cycles: Cycles = 20
    burst_cycles: Cycles = 2
    jump_cycles: Cycles = 12
    ddr_latency_cycles: Cycles = 24
    ddr_bytes_per_cycle: Rate = 8
    on_chip_bytes_per_cycle: Rate = 8


ZYNQ_7020_DMAC = DmacTiming()
"""The DMAC of a Zynq-7000: 8 channels, 16 events, a 64-bit bus, a FIFO of 1 KB (here a quarter
for each of four channels), an instruction cache of 8 lines of 16 bytes (UG585, chapter 9), in its
own clock. Latencies are estimates: none is published."""
