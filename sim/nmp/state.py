"""Everything that changes while the NMP runs, as flat arrays that compiled code can share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.arithmetic import aligned
from tvm_npu.sim.compiled.slices import new_work
from tvm_npu.sim.events import EventColumn
from tvm_npu.sim.nmp.columns import (
    COLUMN_BUFFERS,
    HALTED,
    LINKS,
    SEMAPHORES,
    SPANS,
    Descriptor,
    NmpEvent,
    TrapSlot,
)
from tvm_npu.sim.nmp.host_memory import column_elements
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.xnmp import CONFIG_REGISTERS
from tvm_npu.sim.streams import Stream

Array = NDArray[Any]


class State(NamedTuple):
    """Shapes: K cores, T TLEs, I instructions, S streams, L layers and, as the last one, what
    belongs to no layer."""

    decoded: Array  # int32 [I, 7]: operation, then the ISA's decoded columns
    words: Array  # uint32 [I]
    layer_of: Array  # int32 [I]
    stream_of: Array  # int8 [I]
    code_base: Array  # int64 [1]
    regs: Array  # int32 [K, 32]
    pc: Array  # int64 [K]
    status: Array  # int8 [K]
    last_pc: Array  # int64 [K]: the instruction executed last; -1: none yet
    exit_code: Array  # int32 [K]
    time: Array  # float64 [K + T]: when the actor acts next (TLE entries: its DMA engine)
    wait_level: Array  # int64 [K]
    wait_sem: Array
    wait_count: Array
    sem_tlt: Array  # int64 [K, 16]
    sem_tle: Array  # int64 [T, 16]
    sem_global: Array  # int64 [16]
    mac: Array  # int64 [K, 32] MAC configuration registers
    dma: Array  # int64 [K, 32] DMA configuration registers
    mac_done: Array  # float64 [K] when the MAC unit is free
    mac_sem: Array  # int64 [K] semaphore its operation will signal; -1: nothing outstanding
    mac_ranges: Array  # int64 [K, 8]: bytes of MB0, MB1, MB2, bias buffer that it uses
    mac_width: Array  # int64 [K] bytes of an element of its operation
    mb0: Array  # int8 [K, mb0_bytes]
    mb0_half: Array  # the same memory as int16
    mb1: Array
    mb1_half: Array
    mb2: Array  # int64 [K, mb2_bytes]: one accumulator an element
    bias: Array  # int8 [K, bias_bytes]
    bias_half: Array  # the same as int16
    bias_word: Array  # and as int32
    mb0_tag: Array  # int64 [K, SPANS]: cores of a TLE with the same tag have the same content ...
    mb0_span: Array  # int64 [K, SPANS, 2]: ... in the bytes that both give here; tag 0: no range
    tag_counter: Array  # int64 [1]
    column_key: Array  # int64 [T, COLUMN_BUFFERS, 9]: what the im2col buffers of a TLE hold
    columns: Array  # float64 [T, COLUMN_BUFFERS, column_elements]
    weights: Array  # float64 [mb1_bytes]
    products: Array  # float64 [mb2_bytes]
    dram: Array  # uint8 [bytes]
    dram_half: Array  # int16
    dram_word: Array  # int32
    queue: Array  # int64 [T, depth, Descriptor.COLUMNS]
    queue_head: Array  # int64 [T]
    queue_count: Array  # int64 [T]
    left_bursts: Array  # int64 [T]: of the transfer in progress
    left_bytes: Array  # float64 [T]
    dram_free: Array  # float64 [1]
    ring_free: Array  # float64 [1]: the Global Ringbus
    ring_queued: Array  # int64 [1]: transfers in the queues with receivers in other TLEs
    cache_tags: Array  # int64 [T, lines]
    last_line: Array  # int64 [K]
    trap: Array  # int64 [TrapSlot.COLUMNS]
    work: Array  # int64 [6]: see `compiled.slices`
    paused: Array  # int64 [1]: the core whose turn a slice's end has cut; -1: none
    woken: Array  # int64 [1]: whether, in the turn that runs, another actor's next time has changed
    counters: Array  # int64 [3]: instructions executed, cache misses, whether code was overwritten
    stored: Array  # int64 [3]: the last scalar store to DRAM: core, first byte, end (0: none)
    read_only: Array  # int64 [R, 2], and see `environment`: ranges of DRAM that refuse stores
    unreadable: Array  # int64 [R, 2]: ranges of DRAM that refuse loads
    stack_guard: Array  # int64 [2]: a range of DRAM that cores must not touch
    console: Array  # uint8: what the program has written, from its begin on
    console_count: Array  # int64 [1]: bytes that it has written, also without room for them
    layer_macs: Array  # int64 [L, K]
    layer_mac_cycles: Array  # float64 [L, K]
    layer_wait_cycles: Array  # float64 [L, K]
    layer_instructions: Array  # int64 [L, K]
    layer_link_bytes: Array  # int64 [L, LINKS, S]
    layer_memory_bytes: Array  # int64 [L, 4, 2]: of MB0, MB1, MB2, bias buffers: read, written
    layer_bursts: Array  # int64 [L]
    layer_dma_cycles: Array  # float64 [L, T]
    layer_end: Array  # float64 [L]: when the last core or transfer left the layer
    events: Array  # see `event_table`
    event_times: Array
    event_count: Array
    tile_registers: Array  # int8 [I, most tile indices]: registers that hold them; -1: none


class Costs(NamedTuple):
    """The machine's constants as compiled code reads them (cycles, bytes)."""

    tlts: int
    tles: int
    cores: int
    semaphores: int
    instruction: float
    scalar_memory: float
    semaphore: float
    line_bytes: int
    lines: int
    miss: float
    lanes_int16: int
    efficiency: float
    mac_setup: float
    accumulator_bits: int
    has_filter_words: bool
    has_scales: bool
    mb0_bytes: int
    mb1_bytes: int
    mb2_bytes: int
    bias_bytes: int
    ports: int
    dme_setup: float
    dme_burst: float
    dme_linear: float
    dme_rate: float
    queue_depth: int
    dram_base: int
    dram_bytes: int
    burst_bytes: int
    cas: float
    dram_rate: float
    has_ring: bool
    ring_rate: float
    ring_latency: float
    timed: bool
    records: bool


def make_costs(
    machine: NmpMachine, dram_bytes: int, timing: bool, records: bool = False
) -> Costs:
    """Without timing every cost is zero and every rate infinite; nothing else differs. ``records``
    says that the run's events are recorded."""
    scale = 1.0 if timing else 0.0
    ring = machine.ring
    return Costs(
        tlts=machine.cores.tlts_per_tle,
        tles=machine.cores.tles,
        cores=machine.core_count,
        semaphores=machine.dme.semaphores,
        instruction=machine.cores.instruction_cycles * scale,
        scalar_memory=machine.cores.scalar_memory_cycles * scale,
        semaphore=machine.cores.semaphore_cycles * scale,
        line_bytes=machine.cores.instruction_line_bytes,
        lines=max(
            1, machine.cores.instruction_cache_bytes // machine.cores.instruction_line_bytes
        ),
        miss=machine.cores.instruction_miss_cycles * scale,
        lanes_int16=machine.macs_per_cycle(2),
        efficiency=machine.mac.efficiency if timing else np.inf,
        mac_setup=machine.mac.setup_cycles * scale,
        accumulator_bits=machine.mac.accumulator_bits,
        has_filter_words=machine.mac.requantization in ("filter", "scale"),
        has_scales=machine.mac.requantization == "scale",
        mb0_bytes=machine.memories.mb0_bytes,
        mb1_bytes=machine.memories.mb1_bytes,
        mb2_bytes=machine.memories.mb2_bytes,
        bias_bytes=machine.memories.bias_bytes,
        ports=machine.memories.ports,
        dme_setup=machine.dme.setup_cycles * scale,
        dme_burst=machine.dme.burst_cycles * scale,
        dme_linear=machine.dme.linear_cycles * scale,
        dme_rate=machine.dme.bytes_per_cycle if timing else np.inf,
        queue_depth=machine.dme.queue_depth,
        dram_base=machine.dram.base_address,
        dram_bytes=dram_bytes,
        burst_bytes=machine.dram.burst_bytes,
        cas=machine.dram.cas_cycles * scale,
        dram_rate=machine.dram.bytes_per_cycle if timing else np.inf,
        has_ring=ring is not None,
        ring_rate=ring.bytes_per_cycle if ring and timing else np.inf,
        ring_latency=ring.hop_cycles * (machine.cores.tles - 1) * scale if ring else 0.0,
        timed=timing,
        records=records,
    )


def make_state(
    machine: NmpMachine,
    decoded: Array,
    words: Array,
    code_address: int,
    dram_bytes: int,
    layer_of: Array,
    stream_of: Array,
    layers: int,
    tile_registers: Array,
    environment: dict[str, Array],
) -> State:
    """A machine after reset: zeroed memories, all cores halted until started."""
    return State(
        decoded=decoded,
        words=words,
        layer_of=np.where(layer_of < 0, layers, layer_of).astype(np.int32),
        stream_of=stream_of,
        code_base=np.array([code_address], np.int64),
        trap=np.zeros(TrapSlot.COLUMNS, np.int64),
        work=new_work(),
        paused=np.full(1, -1, np.int64),
        woken=np.zeros(1, np.int64),
        counters=np.zeros(3, np.int64),
        stored=np.zeros(3, np.int64),
        events=np.zeros((0, EventColumn.OWN + NmpEvent.TILE + tile_registers.shape[1]), np.int64),
        event_times=np.zeros((0, 2)),
        event_count=np.zeros(1, np.int64),
        tile_registers=tile_registers,
        **environment,
        **_cores(machine),
        **_mac_units(machine),
        **_memories(machine, dram_bytes),
        **_dma_engines(machine),
        **_layers(machine, layers + 1),
    )


def _cores(machine: NmpMachine) -> dict[str, Array]:
    """Registers, clocks, semaphores and instruction caches; all cores halted."""
    cores, tles = machine.core_count, machine.cores.tles
    lines = max(1, machine.cores.instruction_cache_bytes // machine.cores.instruction_line_bytes)
    return dict(
        regs=np.zeros((cores, 32), np.int32),
        pc=np.zeros(cores, np.int64),
        status=np.full(cores, HALTED, np.int8),
        last_pc=np.full(cores, -1, np.int64),
        exit_code=np.zeros(cores, np.int32),
        time=np.zeros(cores + tles),
        wait_level=np.zeros(cores, np.int64),
        wait_sem=np.zeros(cores, np.int64),
        wait_count=np.zeros(cores, np.int64),
        sem_tlt=np.zeros((cores, SEMAPHORES), np.int64),
        sem_tle=np.zeros((tles, SEMAPHORES), np.int64),
        sem_global=np.zeros(SEMAPHORES, np.int64),
        cache_tags=np.full((tles, lines), -1, np.int64),
        last_line=np.full(cores, -1, np.int64),
    )


def _mac_units(machine: NmpMachine) -> dict[str, Array]:
    """Idle MAC units, and room for their operands as floating point."""
    cores, tles = machine.core_count, machine.cores.tles
    memories = machine.memories
    return dict(
        mac=np.zeros((cores, CONFIG_REGISTERS), np.int64),
        mac_done=np.zeros(cores),
        mac_sem=np.full(cores, -1, np.int64),
        mac_ranges=np.zeros((cores, 8), np.int64),
        mac_width=np.ones(cores, np.int64),
        column_key=np.zeros((tles, COLUMN_BUFFERS, 9), np.int64),
        columns=np.zeros((tles, COLUMN_BUFFERS, column_elements(machine))),
        weights=np.zeros(memories.mb1_bytes),
        products=np.zeros(memories.mb2_bytes),
    )


def _memories(machine: NmpMachine, dram_bytes: int) -> dict[str, Array]:
    """Zeroed memories; the MB0 of each core has content of its own."""
    cores, memories = machine.core_count, machine.memories
    dram = np.zeros(aligned(dram_bytes, 8), np.uint8)
    mb0 = np.zeros((cores, memories.mb0_bytes), np.int8)
    mb1 = np.zeros((cores, memories.mb1_bytes), np.int8)
    bias = np.zeros((cores, memories.bias_bytes), np.int8)
    mb0_tag = np.zeros((cores, SPANS), np.int64)
    mb0_tag[:, 0] = np.arange(1, cores + 1)
    mb0_span = np.zeros((cores, SPANS, 2), np.int64)
    mb0_span[:, 0, 1] = memories.mb0_bytes
    return dict(
        mb0=mb0,
        mb0_half=mb0.view(np.int16),
        mb1=mb1,
        mb1_half=mb1.view(np.int16),
        mb2=np.zeros((cores, memories.mb2_bytes), np.int64),
        bias=bias,
        bias_half=bias.view(np.int16),
        bias_word=bias.view(np.int32),
        mb0_tag=mb0_tag,
        mb0_span=mb0_span,
        tag_counter=np.array([cores + 1], np.int64),
        dram=dram,
        dram_half=dram.view(np.int16),
        dram_word=dram.view(np.int32),
    )


def _dma_engines(machine: NmpMachine) -> dict[str, Array]:
    """Empty queues, and buses that nobody uses."""
    cores, tles = machine.core_count, machine.cores.tles
    return dict(
        dma=np.zeros((cores, CONFIG_REGISTERS), np.int64),
        queue=np.zeros((tles, machine.dme.queue_depth, Descriptor.COLUMNS), np.int64),
        queue_head=np.zeros(tles, np.int64),
        queue_count=np.zeros(tles, np.int64),
        left_bursts=np.zeros(tles, np.int64),
        left_bytes=np.zeros(tles),
        dram_free=np.zeros(1),
        ring_free=np.zeros(1),
        ring_queued=np.zeros(1, np.int64),
    )


def _layers(machine: NmpMachine, rows: int) -> dict[str, Array]:
    """What is counted, in ``rows`` of layers."""
    cores, tles = machine.core_count, machine.cores.tles
    streams = len(Stream)
    return dict(
        layer_macs=np.zeros((rows, cores), np.int64),
        layer_mac_cycles=np.zeros((rows, cores)),
        layer_wait_cycles=np.zeros((rows, cores)),
        layer_instructions=np.zeros((rows, cores), np.int64),
        layer_link_bytes=np.zeros((rows, LINKS, streams), np.int64),
        layer_memory_bytes=np.zeros((rows, 4, 2), np.int64),
        layer_bursts=np.zeros(rows, np.int64),
        layer_dma_cycles=np.zeros((rows, tles)),
        layer_end=np.zeros(rows),
    )


def reset_for_run(state: State) -> None:
    """Back to the moment before the first instruction; DRAM, code and scratchpads stay."""
    state.status[:] = HALTED
    state.last_pc[:] = -1
    state.paused[:] = -1
    state.mac_sem[:] = -1
    state.cache_tags[:] = -1
    state.last_line[:] = -1
    state.column_key[:] = 0
    for array in (
        state.regs, state.exit_code, state.time, state.sem_tlt, state.sem_tle, state.sem_global,
        state.mac, state.dma, state.mac_done, state.queue_head, state.queue_count,
        state.left_bursts, state.left_bytes, state.dram_free, state.ring_free, state.ring_queued,
        state.trap, state.woken, state.counters, state.layer_macs, state.layer_mac_cycles,
        state.layer_wait_cycles, state.layer_instructions, state.layer_link_bytes,
        state.layer_memory_bytes, state.layer_bursts, state.layer_dma_cycles, state.layer_end,
        state.event_count, state.console_count, state.stored,
    ):  # fmt: skip
        array[:] = 0
