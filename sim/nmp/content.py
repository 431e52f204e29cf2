"""Which bytes of MB0 are known to be the same in several cores of a TLE.

Cores whose tiles are the same share one im2col buffer, so it counts to know more than what the last
transfer brought: a tile may arrive in parts, from several TLEs, in any order and for some of the
TLTs only, and beside another tile. Each core has up to SPANS disjoint byte ranges with a tag; cores
with the same tag have the same content in the bytes that both give for it.
"""

from __future__ import annotations

from tvm_npu.sim.compiled.slices import DONE
from tvm_npu.sim.nmp.columns import SPANS
from tvm_npu.sim.nmp.decorators import device
from tvm_npu.sim.nmp.state import Array, Costs, State


@device
def slot_of(tags: Array, tag: int) -> int:
    """Where a core has ``tag``; -1: nowhere."""
    for k in range(SPANS):
        if tags[k] == tag:
            return k
    return -1


@device
def common_span(s: State, m: Costs, tle: int, members: int, tag: int) -> tuple[int, int]:
    """(begin, end) that all ``members`` (bits) of a TLE give for ``tag``; empty when one of them
    does not have it or another core does."""
    begin, end = 0, m.mb0_bytes
    for tlt in range(m.tlts):
        core = tle * m.tlts + tlt
        slot = slot_of(s.mb0_tag[core], tag)
        if (slot >= 0) != ((members >> tlt) & 1 != 0):
            return 0, 0
        if slot >= 0:
            begin = max(begin, s.mb0_span[core, slot, 0])
            end = min(end, s.mb0_span[core, slot, 1])
    return begin, end


@device
def forget(tags: Array, spans: Array, begin: int, end: int) -> None:
    """Content of begin..end changes: takes it out of a core's ranges, which stay in one piece."""
    for k in range(SPANS):
        if tags[k] != 0 and spans[k, 0] < end and begin < spans[k, 1]:
            if begin - spans[k, 0] >= spans[k, 1] - end:
                spans[k, 1] = begin
            else:
                spans[k, 0] = end
            if spans[k, 0] >= spans[k, 1]:
                tags[k] = 0


@device
def remember(tags: Array, spans: Array, tag: int, begin: int, end: int) -> None:
    """A core's new range; the smallest one goes when there is no room."""
    slot, smallest = 0, -1
    for k in range(SPANS):
        size = 0 if tags[k] == 0 else spans[k, 1] - spans[k, 0]
        if smallest < 0 or size < smallest:
            slot, smallest = k, size
    tags[slot] = tag
    spans[slot, 0], spans[slot, 1] = begin, end


@device
def note_content(s: State, m: Costs, tle: int, members: int, begin: int, end: int) -> None:
    """MB0 of the ``members`` (bits) of a TLE gets the same new content in begin..end. What exactly
    they had in common before, and what touches it, stays in common and becomes one range with it.
    """
    s.work[DONE] += SPANS * SPANS * m.tlts
    lead = 0
    while (members >> lead) & 1 == 0:
        lead += 1
    first, last = begin, end
    for k in range(SPANS):
        tag = s.mb0_tag[tle * m.tlts + lead, k]
        if tag == 0:
            continue
        low, high = common_span(s, m, tle, members, tag)
        if low < high and low <= end and begin <= high:
            first, last = min(first, low), max(last, high)
            for tlt in range(lead, m.tlts):
                if (members >> tlt) & 1 != 0:
                    tags = s.mb0_tag[tle * m.tlts + tlt]
                    tags[slot_of(tags, tag)] = 0
    s.tag_counter[0] += 1
    for tlt in range(lead, m.tlts):
        if (members >> tlt) & 1 != 0:
            core = tle * m.tlts + tlt
            forget(s.mb0_tag[core], s.mb0_span[core], begin, end)
            remember(s.mb0_tag[core], s.mb0_span[core], s.tag_counter[0], first, last)


@device
def note_private(s: State, m: Costs, core: int) -> None:
    """A core changed its MB0 by itself: nothing in it is known to be the same elsewhere."""
    s.tag_counter[0] += 1
    s.mb0_tag[core, :] = 0
    s.mb0_tag[core, 0] = s.tag_counter[0]
    s.mb0_span[core, 0, 0], s.mb0_span[core, 0, 1] = 0, m.mb0_bytes


@device
def tag_of(s: State, core: int, begin: int, end: int) -> int:
    """The tag of begin..end of a core's MB0; 0: it has none."""
    for k in range(SPANS):
        if s.mb0_tag[core, k] != 0:
            if s.mb0_span[core, k, 0] <= begin and end <= s.mb0_span[core, k, 1]:
                return s.mb0_tag[core, k]
    return 0
