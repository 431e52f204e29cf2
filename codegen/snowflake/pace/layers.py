"""What each layer of a program takes, from the items of all clusters (`together`).

A layer's cycles are those from when all layers before it have ended to its own end, when its last
transfer, vector instruction or wait in any cluster is over: what the simulator's statistics call
its cycles. What of a layer runs before counts in the layers before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.snowflake.code.banks import INSTRUCTION_BYTES, Bank, CodeBlock
from tvm_npu.codegen.snowflake.pace import together
from tvm_npu.codegen.snowflake.pace.items import Item
from tvm_npu.codegen.snowflake.pace.paces import Gap, Paces
from tvm_npu.sim.snowflake.isa import DELAY_SLOTS, MEMORY_UNIT_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

HEADER_INSTRUCTIONS = 4
"""Of a bank: they load the next one."""

_NONE = Gap(0.0, 0.0)


class Way(NamedTuple):
    """A cluster's `together` items, and the cycles of its core between them."""

    items: NDArray[np.int64]
    gaps: NDArray[np.float64]
    """[N, 2]: columns as of `Gap`."""


class _Rows:
    """The items that are being written; ``banks`` come as code gets there."""

    def __init__(self, banks: Sequence[Bank], raw_cycles: int) -> None:
        self._banks = list(banks)
        # The load of a bank reads the last of the instructions that make its operands.
        cycles = float(HEADER_INSTRUCTIONS - 1 + raw_cycles)
        self._header = Gap(cycles, cycles)
        self._rows: list[tuple[int, int, int, int]] = []
        self._gaps: list[Gap] = []
        self.rest = Gap(1.0, 1.0)
        """What the core takes behind the last item: first for the program's first instruction."""

    def add(self, layer: int, item: Item, gap: Gap = _NONE) -> None:
        self._rows.append((item.kind, layer, item.what, item.more))
        self._gaps.append(self.rest.and_then(gap))
        self.rest = _NONE

    def fetch(self, layer: int) -> None:
        """The next bank, if there is one."""
        if self._banks:
            size = INSTRUCTION_BYTES * self._banks[0].instructions
            item = Item(together.FETCH, -(-size // MEMORY_UNIT_BYTES))
            self.add(layer, item, self._header)

    def come_to(self, layer: int, block: int, word: int) -> None:
        """The core comes to a word of a block, and to the banks up to there."""
        while self._banks and self._banks[0][:2] <= (block, word):
            self._banks.pop(0)
            self.add(layer, Item(together.ENTER, 0))
            self.fetch(layer)

    def way(self) -> Way:
        rows = np.array(self._rows, np.int64).reshape(-1, 4)
        return Way(rows, np.array(self._gaps, np.float64).reshape(-1, 2))


def way(blocks: Sequence[CodeBlock], banks: Sequence[Bank], raw_cycles: int) -> Way:
    """Of a cluster's code."""
    rows = _Rows(banks, raw_cycles)
    rows.fetch(blocks[0].layer)
    for number, block in enumerate(blocks):
        pace = block.words.pace
        assert pace is not None, "blocks are made with paces"
        for item, place, gap in zip(block.items, pace.places, pace.gaps, strict=True):
            rows.come_to(block.layer, number, place)
            rows.add(block.layer, item, gap)
        rows.rest = rows.rest.and_then(pace.rest)
        if pace.vector >= 0:
            # A bank that begins inside comes in front of or behind all of them.
            rows.come_to(block.layer, number, pace.half)
            rows.add(block.layer, Item(together.VECTOR, pace.vector))
    return rows.way()


def layer_cycles(
    ways: Sequence[Way], paces: Paces, machine: SnowflakeMachine, layers: int
) -> tuple[float, ...]:
    """Of ``layers`` layers."""
    sizes = np.cumsum([0, *(len(one.items) for one in ways)])
    queues = machine.vector, machine.load, machine.store
    program = together.Program(
        np.concatenate([one.items for one in ways]),
        np.concatenate([one.gaps for one in ways]),
        sizes[:-1].copy(),
        sizes[1:].copy(),
        paces.table,
        np.array([one.queue_depth for one in queues]),
        np.array([float(one.latency_cycles) for one in queues[1:]]),
        MEMORY_UNIT_BYTES / machine.memory_bytes_per_cycle,
        float(1 + DELAY_SLOTS),
    )
    ends = np.zeros(layers + 1)  # the last one is of no layer
    has_ended = together.run(program, ends)
    assert has_ended, "every wait of a program that was made here is over some time"
    until = np.maximum.accumulate(ends[:layers]) if layers else ends[:0]
    return tuple(float(cycles) for cycles in np.diff(until, prepend=0.0))
