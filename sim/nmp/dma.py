"""The DMA engines: one a TLE, a queue each, one transfer at a time, one shared DRAM and ring.

A transfer of B bursts and Y bytes keeps its engine busy for ``setup + B * burst_cycles +
Y / bytes_per_cycle`` and occupies the DRAM for ``B * cas_cycles + Y / dram.bytes_per_cycle``,
burst by burst, first come, first served. Data arrives when the transfer is complete. A 1-D
transfer, whose addresses are known in advance, takes ``linear_burst_cycles`` a burst instead.

With receivers in other TLEs a burst also occupies the Global Ringbus, for ``bytes /
ring.bytes_per_cycle``, once for all receivers, and the last one arrives ``hop_cycles`` a TLE later.
A forward (MB2 to MB0) uses a ring instead of DRAM: the own TLE's, which nobody else uses, or the
Global Ringbus. Engines of other TLEs that receive are not occupied.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled.arrays import copy_into
from tvm_npu.sim.compiled.slices import DONE
from tvm_npu.sim.nmp.columns import FORWARDED, LOADED, QUEUE_FULL, RING, STORED, Descriptor
from tvm_npu.sim.nmp.content import note_content
from tvm_npu.sim.nmp.decorators import device
from tvm_npu.sim.nmp.hazards import BOX, FORWARDS, STORES
from tvm_npu.sim.nmp.semaphores import add_tlt, wake
from tvm_npu.sim.nmp.state import Array, Costs, State
from tvm_npu.sim.nmp.transfers import (
    forward_box,
    forward_segments,
    load_box,
    load_segments,
    store_box,
    store_segments,
)

KIND, MEMORY, CORE, D_SEM = Descriptor.KIND, Descriptor.MEMORY, Descriptor.CORE, Descriptor.SEM
LOCAL, SPAN, BURSTS, BYTES = Descriptor.LOCAL, Descriptor.SPAN, Descriptor.BURSTS, Descriptor.BYTES
LAYER, STREAM, TLTS, TLES = Descriptor.LAYER, Descriptor.STREAM, Descriptor.TLTS, Descriptor.TLES
EVENT = Descriptor.EVENT

MB0, MB1, MB2, BIAS = 0, 1, 2, 3


@device
def crosses(d: Array, tle: int) -> bool:
    """Whether a transfer of this TLE's engine goes over the Global Ringbus."""
    return d[TLES] != 1 << tle


@device
def bits(mask: int) -> int:
    count = 0
    while mask:
        count += mask & 1
        mask >>= 1
    return count


@device
def account(s: State, d: Array, tle: int) -> None:
    """Counts what the transfer moves: over which links, from and to which memories."""
    layer, moved = d[LAYER], d[BYTES]
    used = s.layer_memory_bytes[layer]
    if d[KIND] & STORES:
        s.layer_link_bytes[layer, STORED, d[STREAM]] += moved
        used[MB2, 0] += moved
    else:
        link = LOADED
        if d[KIND] & FORWARDS:
            link = FORWARDED
            used[MB2, 0] += moved
        s.layer_link_bytes[layer, link, d[STREAM]] += moved
        used[d[MEMORY], 1] += d[SPAN] * bits(d[TLTS]) * bits(d[TLES])
    if d[KIND] & FORWARDS == 0:
        s.layer_bursts[layer] += d[BURSTS]
    if crosses(d, tle):
        s.layer_link_bytes[layer, RING, d[STREAM]] += moved


@device
def start(s: State, m: Costs, tle: int, now: float) -> None:
    """The engine takes up the descriptor at the head of its queue."""
    d = s.queue[tle, s.queue_head[tle]]
    s.left_bursts[tle] = d[BURSTS]
    s.left_bytes[tle] = d[BYTES]
    s.time[m.cores + tle] = now + m.dme_setup
    s.woken[0] = 1
    account(s, d, tle)
    s.layer_dma_cycles[d[LAYER], tle] += m.dme_setup
    if m.records:
        s.event_times[d[EVENT], 0] = now


@device
def move_burst(s: State, m: Costs, tle: int, d: Array, now: float) -> float:
    """Takes a burst's share of DRAM and ring; when it is over."""
    size = s.left_bytes[tle] / s.left_bursts[tle]
    s.left_bursts[tle] -= 1
    s.left_bytes[tle] -= size
    forwards, shared_ring = d[KIND] & FORWARDS != 0, crosses(d, tle)
    begin, busy = now, 0.0
    if not forwards:
        begin = max(begin, s.dram_free[0])
    if shared_ring:
        begin = max(begin, s.ring_free[0])
    if not forwards:
        occupied = m.cas + size / m.dram_rate
        s.dram_free[0] = begin + occupied
        latency = m.dme_burst if d[KIND] & BOX else m.dme_linear
        busy = max(occupied, latency + size / m.dme_rate)
    if forwards or shared_ring:
        busy = max(busy, size / m.ring_rate)
    if shared_ring:
        s.ring_free[0] = begin + size / m.ring_rate
        if s.left_bursts[tle] == 0:
            busy += m.ring_latency
    return begin + busy


@device
def advance(s: State, m: Costs, tle: int) -> None:
    """One event of an engine: move a burst, or complete the transfer."""
    actor = m.cores + tle
    now = s.time[actor]
    d = s.queue[tle, s.queue_head[tle]]
    if s.left_bursts[tle] > 0:
        s.time[actor] = move_burst(s, m, tle, d, now)
        s.layer_dma_cycles[d[LAYER], tle] += s.time[actor] - now
        return
    if d[KIND] & STORES:
        complete_store(s, m, d, now)
    else:
        deliver(s, m, d, now)
    if crosses(d, tle):
        s.ring_queued[0] -= 1
    s.layer_end[d[LAYER]] = max(s.layer_end[d[LAYER]], now)
    if m.records:
        s.event_times[d[EVENT], 1] = now
    s.queue_head[tle] = (s.queue_head[tle] + 1) % m.queue_depth
    s.queue_count[tle] -= 1
    for core in range(tle * m.tlts, (tle + 1) * m.tlts):
        if s.status[core] == QUEUE_FULL:
            wake(s, m, core, now)
    if s.queue_count[tle] > 0:
        start(s, m, tle, now)
    else:
        s.time[actor] = np.inf


@device
def complete_store(s: State, m: Costs, d: Array, now: float) -> None:
    """Moves the data of a finished store and signals its TLT."""
    if d[BYTES] > 0:
        if d[KIND] & BOX:
            store_box(s, m, d)
        else:
            store_segments(s, m, d)
    if d[D_SEM] > 0:
        add_tlt(s, m, d[CORE], d[D_SEM], 1, now)


@device
def fetch(s: State, m: Costs, d: Array, receiver: int) -> None:
    """What a load or forward brings, from where it comes to its first receiver."""
    if d[KIND] & FORWARDS:
        if d[KIND] & BOX:
            forward_box(s, d, receiver)
        else:
            forward_segments(s, d, receiver)
        return
    target = s.mb0[receiver]
    if d[MEMORY] == MB1:
        target = s.mb1[receiver]
    elif d[MEMORY] == BIAS:
        target = s.bias[receiver]
    if d[KIND] & BOX:
        load_box(s, m, d, target)
    else:
        load_segments(s, m, d, target)


@device
def repeat(s: State, d: Array, first: int, receiver: int) -> None:
    """What the first receiver has got, to another one."""
    source, target = s.mb0[first], s.mb0[receiver]
    if d[MEMORY] == MB1:
        source, target = s.mb1[first], s.mb1[receiver]
    elif d[MEMORY] == BIAS:
        source, target = s.bias[first], s.bias[receiver]
    begin, end = d[LOCAL], d[LOCAL] + d[SPAN]
    copy_into(target[begin:end], source[begin:end])


@device
def deliver(s: State, m: Costs, d: Array, now: float) -> None:
    """Moves the data of a finished load or forward and signals the receivers."""
    memory, local, size = d[MEMORY], d[LOCAL], d[SPAN]
    source = -1
    for tle in range(m.tles):
        if size == 0 or (d[TLES] >> tle) & 1 == 0:
            continue
        s.work[DONE] += m.tlts
        if memory == MB0:
            note_content(s, m, tle, d[TLTS], local, local + size)
        for tlt in range(m.tlts):
            if (d[TLTS] >> tlt) & 1 == 0:
                continue
            core = tle * m.tlts + tlt
            if source < 0:
                source = core
                fetch(s, m, d, core)
            else:
                s.work[DONE] += size  # the first receiver's was counted when the transfer issued
                repeat(s, d, source, core)
    if d[D_SEM] == 0:
        return
    for tle in range(m.tles):
        if (d[TLES] >> tle) & 1:
            s.work[DONE] += m.tlts
            for tlt in range(m.tlts):
                if (d[TLTS] >> tlt) & 1:
                    add_tlt(s, m, tle * m.tlts + tlt, d[D_SEM], 1, now)
