"""The pipeline benchmark as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from studies.harness.tables import Sheet, print_sheets
from studies.pipeline.rows import CutRow, OrderRow, RetuneRow, Row, StreamRow
from tvm_npu.cli.tables import Column

LEAST_SHARE = 0.95
LEAST_OVER_PARALLEL = 1.0
MOST_RETUNE_FRAMES = 50


def print_rows(console: Console, rows: Sequence[Row]) -> None:
    streams = [row for row in rows if isinstance(row, StreamRow)]
    retunes = [row for row in rows if isinstance(row, RetuneRow)]
    orders = [row for row in rows if isinstance(row, OrderRow)]
    if streams:
        _print_streams(console, streams)
    if retunes:
        _print_retunes(console, retunes)
    for row in orders:
        console.print(
            f"{row.model}: {row.frames:,} frames, stages exchanged {row.exchanges} times: "
            f"{row.lost} lost, {row.repeated} repeated, {row.out_of_order} out of order, "
            f"{row.wrong} with other bits than the serial run; {row.throughput:,.0f} frames/s, "
            f"latency {row.latency_p50_s * 1e3:.2f} ms (median), {row.latency_p99_s * 1e3:.2f} ms "
            "(99 %)",
            soft_wrap=True,
        )


def misses(rows: Sequence[Row]) -> list[str]:
    """Goals that were not reached, in words."""
    found = []
    for row in rows:
        if isinstance(row, StreamRow):
            if row.tuned_share < LEAST_SHARE:
                found.append(f"{row.model}: tuned to {row.tuned_share:.1%} of the best cut")
            if row.over_layer_parallel <= LEAST_OVER_PARALLEL:
                found.append(
                    f"{row.model}: {row.over_layer_parallel:.2f} of stock TVM on all cores"
                )
        if isinstance(row, RetuneRow):
            if not 0 <= row.retuned_frames <= MOST_RETUNE_FRAMES:
                found.append(f"{row.model}: tuned again only after {row.retuned_frames} frames")
            if row.after_share < LEAST_SHARE:
                found.append(f"{row.model}: tuned again to {row.after_share:.1%} of the best cut")
    return found


def wrong(rows: Sequence[Row]) -> list[str]:
    """What must never be."""
    found = []
    for row in rows:
        if isinstance(row, OrderRow):
            broken = row.lost + row.repeated + row.out_of_order + row.wrong
            if broken:
                found.append(f"{row.model}: {broken} frames lost, repeated, out of order or wrong")
        elif not isinstance(row, CutRow) and not row.bits_equal:
            found.append(f"{row.model}: results differ from the serial run's")
        if isinstance(row, RetuneRow) and row.lost:
            found.append(f"{row.model}: {row.lost} frames lost while tuning")
    return found


def _print_streams(console: Console, rows: Sequence[StreamRow]) -> None:
    first = rows[0]
    columns = [
        Column("network", tuple(row.model for row in rows), name=True),
        Column("cuts\nmeasured", tuple(str(row.configurations) for row in rows)),
        Column("best cut", tuple(row.best for row in rows), name=True),
        Column("frames/s", tuple(f"{row.best_throughput:.2f}" for row in rows)),
        Column("tuned", tuple(row.tuned for row in rows), name=True),
        Column("frames/s", tuple(f"{row.tuned_throughput:.2f}" for row in rows)),
        Column("of the\nbest", tuple(f"{row.tuned_share:.1%}" for row in rows)),
        Column("trials", tuple(str(row.trials) for row in rows)),
        Column("after\nframes", tuple(str(row.tuning_frames) for row in rows)),
        Column("stock TVM,\n2 threads", tuple(f"{r.layer_parallel_throughput:.2f}" for r in rows)),
        Column("the same,\nbound", tuple(f"{r.layer_parallel_bound_throughput:.2f}" for r in rows)),
        Column("fast core\nalone", tuple(f"{row.fast_core_throughput:.2f}" for row in rows)),
        Column("tuned over\nstock TVM", tuple(f"{row.over_layer_parallel:.2f}" for row in rows)),
    ]
    title = f"Two-stage streams, core {first.slow_core} works {first.duty:.0%} of the time"
    print_sheets(console, [Sheet(title, columns)])


def _print_retunes(console: Console, rows: Sequence[RetuneRow]) -> None:
    columns = [
        Column("network", tuple(row.model for row in rows), name=True),
        Column("noticed\nafter", tuple(str(row.noticed_frames) for row in rows)),
        Column("tuned\nafter", tuple(str(row.retuned_frames) for row in rows)),
        Column("search\nended", tuple(str(row.finished_frames) for row in rows)),
        Column("trials", tuple(str(row.trials) for row in rows)),
        Column("before", tuple(row.before for row in rows), name=True),
        Column("frames/s", tuple(f"{row.before_throughput:.2f}" for row in rows)),
        Column("left so,\nframes/s", tuple(f"{row.stuck_throughput:.2f}" for row in rows)),
        Column("after", tuple(row.after for row in rows), name=True),
        Column("frames/s", tuple(f"{row.after_throughput:.2f}" for row in rows)),
        Column("of the\nbest", tuple(f"{row.after_share:.1%}" for row in rows)),
        Column("lost", tuple(str(row.lost) for row in rows)),
    ]
    title = "The throttle moves to the other core while frames flow (counts are frames)"
    print_sheets(console, [Sheet(title, columns)])
