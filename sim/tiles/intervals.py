"""Which bytes the two engines have touched, and when they were done with them.

Each engine works in order, so of two uses of a byte in the same way by the same engine only the
later one can make the other engine wait: a list holds disjoint ranges, a new range takes their part
out of older ones. A range also goes when the other engine is busy until after its end; so lists
stay as short as there are tiles in flight, and are exact to the byte. What is looked at
beyond `SPANS` of them counts as work: a program can make them as long as it is.
"""

from __future__ import annotations

from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.slices import DONE
from tvm_npu.sim.tiles.state import RANGES, SPANS, State


@device
def has_room(s: State) -> bool:
    """Whether any next command's ranges fit; each of them can cut one other in two."""
    for kind in range(4):
        if s.span_count[kind] + 2 * RANGES > s.spans.shape[1]:
            return False
    return True


@device
def latest(s: State, kind: int, begin: int, end: int) -> float:
    """When the last use in list ``kind`` that overlaps begin..end is done; 0: there is none."""
    spans, done, count = s.spans[kind], s.span_done[kind], s.span_count[kind]
    s.work[DONE] += max(0, count - SPANS)
    result = 0.0
    for k in range(count):
        if spans[k, 0] < end and begin < spans[k, 1] and done[k] > result:
            result = done[k]
    return result


@device
def note(s: State, kind: int, begin: int, end: int, when: float, horizon: float) -> None:
    """begin..end is in use until ``when``, not before any use in the list; the other engine starts
    nothing before ``horizon``."""
    spans, done = s.spans[kind], s.span_done[kind]
    count = s.span_count[kind]
    s.work[DONE] += max(0, count - SPANS)
    kept, behind = 0, 0
    for k in range(count):
        low, high, time = spans[k, 0], spans[k, 1], done[k]
        if time <= horizon:
            continue
        if low < end and begin < high:
            if low < begin and end < high:  # the part behind goes to the end of the list
                spans[count, 0], spans[count, 1], done[count] = end, high, time
                behind = 1
                high = begin
            elif low < begin:
                high = begin
            elif end < high:
                low = end
            else:
                continue
        spans[kept, 0], spans[kept, 1], done[kept] = low, high, time
        kept += 1
    if behind:
        spans[kept, 0], spans[kept, 1] = spans[count, 0], spans[count, 1]
        done[kept] = done[count]
        kept += 1
    if when > horizon:
        spans[kept, 0], spans[kept, 1], done[kept] = begin, end, when
        kept += 1
    s.span_count[kind] = kept
