"""The loop over the words of a program.

It goes back to Python when there is something that only Python can do: `CONTROL` at an instruction
of the DMA controller, `GROW` when the lists of live ranges are full, `PAUSED` at the end of a
slice. Called again it goes on where
it was.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tvm_npu.sim.compiled import device, entry
from tvm_npu.sim.compiled.slices import EXECUTABLE, EXECUTED, ran_away, slice_ends
from tvm_npu.sim.tiles.convolution import tconv
from tvm_npu.sim.tiles.elementwise import tfill, tfinish, tvec
from tvm_npu.sim.tiles.intervals import has_room
from tvm_npu.sim.tiles.isa import TILE_ISA, Accumulate, TileRegister
from tvm_npu.sim.tiles.operands import STOP, races, trap
from tvm_npu.sim.tiles.pooling import tpool
from tvm_npu.sim.tiles.state import ISSUE, Costs, SharedState, State
from tvm_npu.sim.tiles.transfers import tload, tstore
from tvm_npu.sim.tiles.traps import TileTrapCode as Code

ENDED, TRAPPED, GROW, CONTROL, PAUSED = range(5)
"""Why the loop came back."""


TSET, TSETU = TILE_ISA.index["tset"], TILE_ISA.index["tsetu"]
TLOAD, TSTORE = TILE_ISA.index["tload"], TILE_ISA.index["tstore"]
TCONV, TFINISH = TILE_ISA.index["tconv"], TILE_ISA.index["tfinish"]
TPOOL, TVEC, TFILL = TILE_ISA.index["tpool"], TILE_ISA.index["tvec"], TILE_ISA.index["tfill"]
TGO, TWAIT = TILE_ISA.index["tgo"], TILE_ISA.index["twait"]
TEND = TILE_ISA.index["tend"]

RD, IMM, SUB = 1, 4, 6
REGISTERS = len(TileRegister)
SUMS = len(Accumulate)
LOW_BITS = (1 << 19) - 1


@device
def execute_words(s: State, m: Costs) -> int:
    """Executes words from `State.pc` on, until one of the reasons to come back."""
    rows = len(s.decoded)
    while True:
        row = s.pc[0]
        if row >= rows:
            trap(s, Code.NO_END, rows, 0, 0, 0, 0)
            return TRAPPED
        if ran_away(s.work):
            trap(s, Code.RUNAWAY, s.work[EXECUTABLE], 0, 0, 0, 0)
            return TRAPPED
        op = s.decoded[row, 0]
        if op == TGO or op == TWAIT:
            return CONTROL
        if op > TSETU:
            if not has_room(s):
                return GROW
            if slice_ends(s.work):
                return PAUSED
        s.clock[ISSUE] += m.issue
        layer = s.layer_of[row]
        s.layer_instructions[layer] += 1
        s.work[EXECUTED] += 1
        s.layer_end[layer] = max(s.layer_end[layer], s.clock[ISSUE])
        s.range_count[0] = 0
        outcome = 0
        if op == TSET or op == TSETU:
            register = s.decoded[row, RD]
            value = np.int64(s.decoded[row, IMM])
            if register >= REGISTERS:
                outcome = trap(s, Code.ILLEGAL_INSTRUCTION, s.words[row], 0, 0, 0, 0)
            elif op == TSET:
                s.registers[register] = value
            else:
                both = (s.registers[register] & LOW_BITS) | value << 19
                s.registers[register] = np.int64(np.int32(both))
        elif op == TLOAD:
            outcome = tload(s, m, row)
        elif op == TSTORE:
            outcome = tstore(s, m, row)
        elif op == TCONV and s.decoded[row, SUB] < SUMS:
            outcome = tconv(s, m, row)
        elif op == TFINISH:
            outcome = tfinish(s, m, row)
        elif op == TPOOL:
            outcome = tpool(s, m, row)
        elif op == TVEC:
            outcome = tvec(s, m, row)
        elif op == TFILL:
            outcome = tfill(s, m, row)
        elif op == TEND:
            return ENDED
        else:
            outcome = trap(s, Code.ILLEGAL_INSTRUCTION, s.words[row], 0, 0, 0, 0)
        if outcome == STOP or (len(s.flights) and races(s)):
            return TRAPPED
        s.pc[0] = row + 1


@entry
def run_words(state: Any, m: Any) -> Any:
    """(why it came back, `State.events`, `State.event_times`) of `execute_words`."""
    s = SharedState(*state)
    outcome = execute_words(s, m)
    return outcome, s.events, s.event_times


def run(state: State, costs: Costs) -> tuple[int, State]:
    """`execute_words`; the state has the table of events, which may have grown."""
    outcome, events, times = run_words(state, costs)
    return outcome, state._replace(events=events, event_times=times)
