"""A profile in a process of its own, and what its report and its trace take beyond it."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

from studies.harness.errors import StudyError
from studies.harness.processes import module_command, module_environment
from studies.report.trace_format import faults

SEED = 0


@dataclass(frozen=True)
class Row:
    """CPU times are those of one process; ``report_cpu_s`` has the import of the libraries and
    reading the model again in it, as `tvm-npu profile --html` does. ``trace_faults``: what is
    wrong with the trace's entries; ``coarse_layers``: for whose events it has no room."""

    model: str
    machine: str
    layers: int
    profile_cpu_s: float
    report_cpu_s: float
    report_bytes: int
    trace_cpu_s: float
    trace_bytes: int
    slices: int
    coarse_layers: int
    trace_faults: list[str]

    @property
    def beyond_cpu_s(self) -> float:
        return self.report_cpu_s + self.trace_cpu_s


def measure(model: str, machine: str, folder: Path) -> Row:
    """Files stay in ``folder``. Raises StudyError when the process fails."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        module_command(__name__, model, machine, str(folder)),
        env=module_environment(), capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise StudyError(f"{model} on {machine}: exit code {done.returncode}: {last}")
    return Row(**json.loads(done.stdout))


def measured(model: str, machine: str, folder: Path) -> Row:
    """In this process."""
    import onnx

    import tvm_npu
    from tvm_npu.cli.entry import OBJECTS_TO_COLLECT
    from tvm_npu.models import build

    gc.set_threshold(OBJECTS_TO_COLLECT, *gc.get_threshold()[1:])  # as the command has it
    name = f"{model}-{Path(machine).stem}"
    file, page, trace = (folder / f"{name}{end}" for end in (".onnx", ".html", ".trace.json"))
    onnx.save(build(model), file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of random input
        found = tvm_npu.profile(file, machine, seed=SEED)
    profiled = time.process_time()
    onnx.load(file)
    found.write_html(page)
    reported = time.process_time()
    found.write_trace(trace)
    traced = time.process_time()
    content = trace.read_bytes()
    coarse = json.loads(content)["otherData"]["layers drawn coarsely"]
    return Row(
        model, found.profile.machine, len(found.profile.layers), profiled, reported - profiled,
        page.stat().st_size, traced - reported, len(content), content.count(b'"ph": "X"'),
        0 if coarse == "none" else coarse.count(",") + 1, faults(content),
    )  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(asdict(measured(sys.argv[1], sys.argv[2], Path(sys.argv[3])))))
