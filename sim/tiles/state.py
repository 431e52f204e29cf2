"""Everything that changes while a tile machine runs, as flat arrays that compiled code can share.

All memories lie in one array of bytes: the DRAM image, then the memories on chip, then scratch
space of the simulator for what is not aligned: elements, and accumulators. An address in compiled
code is an index into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.experimental import structref
from numpy.typing import NDArray

from tvm_npu.sim.arithmetic import aligned
from tvm_npu.sim.compiled.slices import new_work
from tvm_npu.sim.events import EventColumn
from tvm_npu.sim.machine_parts import ELEMENT_BYTES, Precision
from tvm_npu.sim.tiles.isa import CONFIG_REGISTERS, TileMemory, TransferStream
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine
from tvm_npu.sim.tiles.traps import TrapSlot

Array = NDArray[Any]

ISSUE, MOVER, ENGINE = 0, 1, 2
"""Clocks: when the next word issues; when the transfer and the compute engine are free."""

MOVER_WRITES, MOVER_READS, ENGINE_WRITES, ENGINE_READS = range(4)
"""Lists of live byte ranges, see `intervals`."""

SPANS = 256
"""Ranges that a list holds at first; it grows when it has to."""

RANGES = 8
"""Byte ranges that one command can touch."""

FLIGHT = 6
"""A DMA program that nobody has waited for: 1 (0: there is none), 1 if it writes on chip (0:
outside), begin and end on chip, begin and end outside."""

SCRATCH_ELEMENTS = 1 << 19
"""Elements of the im2col buffer; larger tiles go in blocks of columns."""

EXACT_PRODUCTS = {"int8": 1 << 10, "int16": 1 << 22}
"""Products that may be summed in floating point, exactly: int8 in float32 (2**10 * 2**14 = 2**24),
int16 in float64 (2**22 * 2**30 = 2**52)."""

ALIGNMENT = 64


class TileEvent:
    """An event's own columns, from `EventColumn.OWN` on: ACCESSES times first and last index into
    `State.memory`, whether it writes (last 0: no access)."""

    ACCESSES = RANGES
    COLUMNS = 3 * ACCESSES


class State(NamedTuple):
    """Shapes: I instruction words, L layers and, as the last one, what belongs to none."""

    decoded: Array  # int32 [I, 7]: operation, then the ISA's decoded columns
    words: Array  # uint32 [I]
    layer_of: Array  # int32 [I]
    registers: Array  # int64 [64]
    pc: Array  # int64 [1]: index of the next word
    clock: Array  # float64 [3]
    places: Array  # int64 [6, 2]: by TileMemory: address, bytes
    memory: Array  # uint8 [bytes]
    memory_byte: Array  # the same as int8 ...
    memory_half: Array
    memory_word: Array
    memory_long: Array  # ... to int64
    written: Array  # uint8 [bytes on chip]: 1 where something was written in this run
    spans: Array  # int64 [4, SPANS, 2]: begin, end
    span_done: Array  # float64 [4, SPANS]
    span_count: Array  # int64 [4]
    ranges: Array  # int64 [RANGES, 3]: list, begin, end of what the command at hand touches
    range_count: Array  # int64 [1]
    work: Array  # int64 [6]: see `compiled.slices`
    flights: Array  # int64 [channels, FLIGHT]: what the DMA controller may be moving now
    tile: Array  # float32 or float64: elements of the first operand, packed
    weights: Array  # of the second
    columns: Array  # im2col
    products: Array
    sums: Array  # int64
    tile_key: Array  # int64 [3]: address, end, elements that `tile` holds; address -1: none
    columns_key: Array  # int64 [17]: likewise for `columns`, with all that it depends on
    trap: Array  # int64 [TrapSlot.COLUMNS]
    layer_macs: Array  # int64 [L]
    layer_instructions: Array  # int64 [L]
    layer_busy: Array  # float64 [L, 1 + D]: cycles of the engine, and of what moves data
    layer_wait: Array  # float64 [L]: cycles that the free engine waits for transfers
    layer_bytes: Array  # int64 [L, 2, streams]: loaded, stored
    layer_memory_bytes: Array  # int64 [L, 4, 2]: of the first `TileMemory`s: read, written
    layer_runs: Array  # int64 [L]: contiguous pieces outside of the chip
    layer_end: Array  # float64 [L]
    events: Array  # see `event_table`
    event_times: Array
    event_count: Array


@structref.register
class _SharedStateType(types.StructRef):
    """Compiled code passes the state on as one pointer."""


class SharedState(structref.StructRefProxy):
    """The state inside compiled code; made from a `State` at the entry of a run."""

    def __new__(cls, *fields: Any) -> Any:
        return structref.StructRefProxy.__new__(cls, *fields)


structref.define_proxy(SharedState, _SharedStateType, list(State._fields))


class Costs(NamedTuple):
    """The machine's constants as compiled code reads them (cycles, bytes)."""

    element_bytes: int
    accumulator_bytes: int
    element_low: int
    element_high: int
    exact_products: int
    chip_begin: int
    scratch_begin: int
    sums_begin: int
    has_mover: bool
    has_core: bool
    timed: bool
    records: bool
    issue: float
    setup: float
    pes: int
    over_channels: int
    over_filters: int
    over_rows: int
    over_columns: int
    taps_at_once: int
    mover_setup: float
    mover_segment: float
    mover_rate: float
    mac: float
    operation: float
    cache_bytes: int
    line_bytes: int
    hit: float
    chip_access: float
    dram_access: float
    chip_miss: float
    dram_miss: float


def make_costs(
    machine: TileMachine,
    precision: Precision,
    state: State,
    timing: bool,
    records: bool = False,
) -> Costs:
    """Without ``timing`` no clock moves; nothing else differs. ``records`` says that the run's
    events are recorded."""
    half = 1 << (8 * ELEMENT_BYTES[precision] - 1)
    array, mover, core = machine.array, machine.mover, machine.core
    engine = array or core
    assert engine is not None  # a machine has one of them
    chip_begin = int(state.places[: TileMemory.CONSTANTS, 0].min())
    scratch_begin = chip_begin + len(state.written)
    return Costs(
        element_bytes=machine.element_bytes(precision),
        accumulator_bytes=machine.accumulator_bytes(precision),
        element_low=-half,
        element_high=half - 1,
        exact_products=EXACT_PRODUCTS[precision],
        chip_begin=chip_begin,
        scratch_begin=scratch_begin,
        sums_begin=scratch_begin + (len(state.memory) - scratch_begin) // 2,
        has_mover=mover is not None,
        has_core=machine.core is not None,
        timed=timing,
        records=records,
        issue=1.0 if timing else 0.0,
        setup=engine.setup_cycles,
        pes=array.width * array.height if array else 1,
        over_channels=array.pes_over("IC") if array else 1,
        over_filters=array.pes_over("OC") if array else 1,
        over_rows=array.pes_over("OH") if array else 1,
        over_columns=array.pes_over("OW") if array else 1,
        taps_at_once=array.taps_at_once if array else 1,
        mover_setup=mover.setup_cycles if mover else 0.0,
        mover_segment=mover.segment_cycles if mover else 0.0,
        mover_rate=mover.bytes_per_cycle if mover else 1.0,
        mac=core.mac_cycles if core else 0.0,
        operation=core.operation_cycles if core else 0.0,
        cache_bytes=core.cache_bytes if core else 0,
        line_bytes=core.line_bytes if core else 1,
        hit=core.hit_cycles if core else 0.0,
        chip_access=core.chip_access_cycles if core else 0.0,
        dram_access=core.dram_access_cycles if core else 0.0,
        chip_miss=core.chip_miss_cycles if core else 0.0,
        dram_miss=core.dram_miss_cycles if core else 0.0,
    )


def make_state(
    machine: TileMachine,
    precision: Precision,
    decoded: Array,
    words: Array,
    dram_bytes: int,
    segments: Mapping[TileMemory, tuple[int, int]],
    layer_of: Array,
    layers: int,
) -> State:
    """``segments``: (offset in DRAM, bytes) of CONSTANTS and ACTIVATIONS; ``layer_of`` is -1 for
    words of no layer."""
    places, chip_begin, end = _placed(machine, dram_bytes, segments)
    # Only a core has operands outside of the chip; memory that is not touched costs nothing.
    reachable = places if machine.core else places[: TileMemory.CONSTANTS]
    largest_bytes = aligned(int(reachable[:, 1].max()), ALIGNMENT)
    memory_array = np.zeros(end + 2 * largest_bytes, np.uint8)
    largest = max(SCRATCH_ELEMENTS, largest_bytes // machine.element_bytes(precision))
    floats = np.float32 if precision == "int8" else np.float64
    rows = layers + 1
    return State(
        decoded=decoded,
        words=words,
        layer_of=np.where(layer_of < 0, layers, layer_of).astype(np.int32),
        registers=np.zeros(CONFIG_REGISTERS, np.int64),
        pc=np.zeros(1, np.int64),
        clock=np.zeros(3),
        places=places,
        memory=memory_array,
        memory_byte=memory_array.view(np.int8),
        memory_half=memory_array.view(np.int16),
        memory_word=memory_array.view(np.int32),
        memory_long=memory_array.view(np.int64),
        written=np.zeros(end - chip_begin, np.uint8),
        spans=np.zeros((4, SPANS, 2), np.int64),
        span_done=np.zeros((4, SPANS)),
        span_count=np.zeros(4, np.int64),
        ranges=np.zeros((RANGES, 3), np.int64),
        range_count=np.zeros(1, np.int64),
        work=new_work(),
        flights=np.zeros((machine.dmac.channels if machine.dmac else 0, FLIGHT), np.int64),
        tile=np.empty(largest, floats),
        weights=np.empty(largest, floats),
        columns=np.empty(largest, floats),
        products=np.empty(largest, floats),
        sums=np.empty(largest, np.int64),
        tile_key=np.full(3, -1, np.int64),
        columns_key=np.full(17, -1, np.int64),
        trap=np.zeros(TrapSlot.COLUMNS, np.int64),
        layer_macs=np.zeros(rows, np.int64),
        layer_instructions=np.zeros(rows, np.int64),
        layer_busy=np.zeros((rows, 1 + (machine.dmac.channels if machine.dmac else 1))),
        layer_wait=np.zeros(rows),
        layer_bytes=np.zeros((rows, 2, len(TransferStream)), np.int64),
        layer_memory_bytes=np.zeros((rows, int(TileMemory.CONSTANTS), 2), np.int64),
        layer_runs=np.zeros(rows, np.int64),
        layer_end=np.zeros(rows),
        events=np.zeros((0, EventColumn.OWN + TileEvent.COLUMNS), np.int64),
        event_times=np.zeros((0, 2)),
        event_count=np.zeros(1, np.int64),
    )


def _placed(
    machine: TileMachine, dram_bytes: int, segments: Mapping[TileMemory, tuple[int, int]]
) -> tuple[Array, int, int]:
    """(first byte in `State.memory` and size of each memory, where the chip begins, where it
    ends)."""
    memories = machine.memories
    chip: list[tuple[tuple[TileMemory, ...], int]]
    if isinstance(memories, SharedMemory):
        shared = (TileMemory.INPUT, TileMemory.WEIGHT, TileMemory.OUTPUT)
        chip = [(shared, memories.shared_bytes)]
    else:
        chip = [
            ((TileMemory.INPUT,), memories.input_bytes),
            ((TileMemory.WEIGHT,), memories.weight_bytes),
            ((TileMemory.OUTPUT,), memories.output_bytes),
        ]
    chip.append(((TileMemory.BIAS,), memories.bias_bytes))
    places = np.zeros((len(TileMemory), 2), np.int64)
    for memory, place in segments.items():
        places[memory] = place
    chip_begin = position = aligned(dram_bytes, ALIGNMENT)
    for names, size in chip:
        for memory in names:
            places[memory] = position, size
        position += aligned(size, ALIGNMENT)
    return places, chip_begin, position


def reset_for_run(state: State) -> None:
    """Back to the moment before the first instruction. DRAM stays; what is on chip counts as
    unwritten."""
    for array in (
        state.registers, state.pc, state.clock, state.written, state.span_count, state.range_count,
        state.flights, state.trap, state.layer_macs, state.layer_instructions, state.layer_busy,
        state.layer_wait, state.layer_bytes, state.layer_memory_bytes, state.layer_runs,
        state.layer_end, state.event_count,
    ):  # fmt: skip
        array[:] = 0
    state.tile_key[:] = -1
    state.columns_key[:] = -1


def grown(state: State) -> State:
    """The same state with room for twice as many live ranges."""
    lists, spans, _ = state.spans.shape
    return state._replace(
        spans=np.concatenate([state.spans, np.zeros((lists, spans, 2), np.int64)], axis=1),
        span_done=np.concatenate([state.span_done, np.zeros((lists, spans))], axis=1),
    )
