"""The state of a controller that has just been made: every channel stopped, nothing in its
queues."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.parts.pl330 import state
from tvm_npu.sim.parts.pl330.isa import PL330_ISA
from tvm_npu.sim.parts.pl330.state import Bytes, State
from tvm_npu.sim.parts.pl330.timing import DmacTiming


def _instruction_table() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ISA table as compiled code reads it: rows, and the row by an instruction's first byte."""
    instructions = PL330_ISA.instructions
    table = np.zeros((len(instructions), state.OPERANDS + 6), np.int64)
    row_of = np.full(256, -1, np.int64)
    for row, item in enumerate(instructions):
        action = state.ACTIONS.index(item.execute)
        table[row, : state.OPERANDS] = item.size_bytes, item.mask, item.match, action
        for operand in item.fields:
            if operand.column == "c":
                continue
            ((high, low, _),) = operand.pieces
            column = state.OPERANDS + 3 * ("a", "b").index(operand.column)
            table[row, column : column + 3] = low, (1 << (high - low + 1)) - 1, operand.bias
        first = item.mask & 0xFF
        for byte in range(256):
            if byte & first == item.match & first:
                row_of[byte] = row
    return table, row_of


_TABLE, _ROW_OF = _instruction_table()


def new_state(timing: DmacTiming, ddr: Bytes, on_chip: Bytes, work: NDArray[np.int64]) -> State:
    """``ddr`` and ``on_chip`` are used in place; ``work`` counts and limits what is done."""
    channels = timing.channels

    def integers(*more: int, value: int = 0) -> NDArray[np.int64]:
        return np.full((channels, *more), value, np.int64)

    def times(*more: int) -> NDArray[np.float64]:
        return np.zeros((channels, *more))

    return State(
        table=_TABLE,
        row_of=_ROW_OF,
        code=np.zeros((channels, timing.program_bytes), np.uint8),
        code_bytes=integers(),
        status=integers(value=state.STOPPED),
        pc=integers(),
        line=integers(value=-1),
        ready=times(),
        registers=integers(3),
        counter=integers(2),
        body=integers(2, value=-1),
        nesting=integers(3),
        fifo=np.zeros((channels, timing.fifo_bytes), np.uint8),
        fifo_head=integers(),
        fifo_count=integers(),
        claimed=integers(),
        data_ready=times(),
        stores=integers(timing.store_queue, 3),
        store_ready=times(timing.store_queue),
        store_head=integers(),
        store_count=integers(),
        store_done=times(),
        next_ddr=integers(2, value=-1),
        waits_for=integers(value=-1),
        end=times(),
        pending=np.zeros(timing.events, np.uint8),
        to_core=np.ones(timing.events, np.uint8),
        signal=np.zeros(timing.events),
        tags=np.full(timing.cache_lines, -1, np.int64),
        free=np.zeros(3),
        last=np.full(1, channels - 1, np.int64),
        counters=integers(state.COUNTERS),
        runs=integers(state.MOST_RUNS, 2),
        run_count=integers(),
        transfer=integers(state.TRANSFER),
        work=work,
        trap=np.zeros(6, np.int64),
        ddr=ddr,
        on_chip=on_chip,
    )
