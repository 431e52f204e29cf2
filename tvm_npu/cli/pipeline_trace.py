"""What ``tvm-npu pipeline --trace`` writes: frames on their places and, where stages have regions
of an NPU, what its units do in one image."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tvm_npu.calibration import Sample
from tvm_npu.door.models import PartitionedModel
from tvm_npu.report.runs import RegionRun
from tvm_npu.report.trace import make_trace
from tvm_npu.sim.limits import Limits

WALL_CLOCK = "microseconds of the wall clock from the first frame"
SIMULATED_CLOCK = "microseconds of simulated time from the first frame"


def pipeline_trace(
    stages: Sequence[dict[str, Any]],
    partitioned: PartitionedModel | None,
    samples: Sequence[Sample],
    limits: Limits,
    clock: str = WALL_CLOCK,
) -> bytes:
    """``stages`` are those of `runtime.pipeline.trace.trace_events`. The regions of ``partitioned``
    run once more, on the first sample, and are recorded: what they take is simulated time, from 0
    on, in processes of their own."""
    others: dict[str, str] = {"clock": f"places: {clock}"}
    if partitioned is None or not partitioned.symbols:
        return _written(stages, others)
    runs = [
        RegionRun.of(symbol, partitioned.region(symbol).generated(), True, True, limits)
        for symbol in partitioned.symbols
    ]
    partitioned.run_regions({run.symbol: run for run in runs}, samples[:1])
    trace = json.loads(make_trace(runs, partitioned.report.refusals).content)
    behind = 1 + max((event["pid"] for event in stages), default=0)
    machine = trace["otherData"].pop("machine")
    units = [_moved(event, behind, machine) for event in trace["traceEvents"]]
    others["clock"] += f"; the NPU's processes: {trace['otherData'].pop('clock')}"
    return _written([*stages, *units], {**others, "machine": machine, **trace["otherData"]})


def _written(events: Sequence[Mapping[str, Any]], others: Mapping[str, str]) -> bytes:
    """An event a line."""
    header = json.dumps({"displayTimeUnit": "ms", "otherData": others})[:-1]
    lines = ",\n".join(map(json.dumps, events))
    return f'{header}, "traceEvents": [\n{lines}\n]}}\n'.encode()


def _moved(event: Mapping[str, Any], behind: int, machine: str) -> dict[str, Any]:
    """The same in another process, whose name says that its time is simulated."""
    found = {**event, "pid": event["pid"] + behind}
    if event["name"] == "process_name":
        found["args"] = {"name": f"{event['args']['name']} ({machine}, simulated time)"}
    elif event["name"] == "process_sort_index":
        found["args"] = {"sort_index": event["args"]["sort_index"] + behind}
    return found
