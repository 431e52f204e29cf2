"""How long a command of a tile machine takes once it runs: closed forms, each stated once.

Cost models call these functions with plain numbers; the simulator compiles the same functions.
"""

from __future__ import annotations


def contiguous_runs(
    run_bytes: int, inner: int, stride_inner: int, outer: int, stride_outer: int
) -> int:
    """Contiguous pieces outside of the chip of ``outer`` x ``inner`` runs: runs that follow each
    other without a gap are one."""
    if inner == 1 or stride_inner == run_bytes:
        return 1 if outer == 1 or stride_outer == inner * run_bytes else outer
    return outer * inner


def transfer_cycles(
    setup: float, segment: float, bytes_per_cycle: float, runs: int, size_bytes: int
) -> float:
    """A mover's transfer of ``size_bytes`` in ``runs`` contiguous pieces."""
    return setup + runs * segment + size_bytes / bytes_per_cycle


def array_conv_cycles(
    setup: float, groups: int, filters: int, channels: int, rows: int, columns: int, taps: int,
    over_channels: int, over_filters: int, over_rows: int, over_columns: int, taps_at_once: int,
) -> float:  # fmt: skip
    """A convolution on an array: iterations of all loops, those spread over PEs divided by their
    number and rounded up (e-PlaNNer, Equation 6.9). ``filters`` and ``channels`` are those of one
    group; ``taps`` are kernel rows x columns; ``over_*`` say over how many PEs a loop is spread;
    ``taps_at_once`` taps take PEs over channels beside each other."""
    iterations = -(-filters // over_filters) * -(-channels // over_channels)
    iterations *= -(-rows // over_rows) * -(-columns // over_columns)
    return setup + groups * iterations * -(-taps // taps_at_once)


def most_taps_at_once(taps_at_once: int, over_channels: int, channels: int) -> int:
    """So many taps can a convolution of ``channels`` a group take at a time: each takes PEs for all
    of them. ``taps_at_once`` is the machine's most."""
    return max(1, min(taps_at_once, over_channels // channels))


def core_operand_cycles(
    cache_bytes: int, line_bytes: int, hit: float, miss: float, access: float,
    accesses: int, size_bytes: int, walks: int,
) -> float:  # fmt: skip
    """What ``accesses`` to an operand of ``size_bytes`` cost a core that walks over all of it
    ``walks`` times. Without a cache each goes to the memory where the operand lies; with one each
    is a hit, and a line is fetched when it is first touched (caches are empty at the begin of a
    command: the double-buffer paper flushes them after each), anew for every walk over an operand
    that does not fit."""
    if cache_bytes == 0:
        return accesses * access
    lines = -(-size_bytes // line_bytes)
    if size_bytes > cache_bytes:
        lines *= walks
    return accesses * hit + lines * miss


def array_element_cycles(operations: int, pes: int) -> float:
    """tfinish, tpool, tvec and tfill on an array: one operation a PE and cycle. Operations are the
    result's elements, for tpool times the elements of the window."""
    return float(-(-operations // pes))
