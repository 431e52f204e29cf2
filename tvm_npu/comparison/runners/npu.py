"""The simulated NPU, what it does not take on this CPU."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tvm_npu.calibration import Sample
from tvm_npu.comparison.inputs import read_samples
from tvm_npu.comparison.runners.stock import exported_bytes, missing_tvm
from tvm_npu.comparison.task import Cost, Task
from tvm_npu.door.models import BuiltModel, build_onnx
from tvm_npu.report.energy import run_energy_uj
from tvm_npu.runtime import packed
from tvm_npu.runtime.session import Session
from tvm_npu.sim.limits import Limits
from tvm_npu.sim.machine_file import machine_from_dict


@dataclass
class OnNpu:
    """A model with regions. Sessions are those of its regions: nothing else runs in the process."""

    built: BuiltModel
    limits: Limits
    sessions: Mapping[str, Session] = field(default_factory=dict)

    def run(self, inputs: Sample) -> list[NDArray[Any]]:
        with packed.limited(self.limits):
            return self.built.run(inputs)

    def cost(self, inputs: Sample, repeats: int) -> Cost:
        """Cycles do not vary: a second run gives the rest, without the simulator's warming up."""
        self.run(inputs)
        self.sessions = packed.sessions()
        before_us, before_uj = self._simulated_us(), self._energy_uj()
        self.run(inputs)
        latency_us, after_uj = self._simulated_us() - before_us, self._energy_uj()
        energy_uj = None if before_uj is None or after_uj is None else after_uj - before_uj
        for session in self.sessions.values():
            session.timing = False
        with _inside(list(self.sessions.values())) as spent:
            begin = time.perf_counter()
            self.run(inputs)
            rest = time.perf_counter() - begin - spent()
        return Cost(
            latency_us, simulated=True, repeats=1, rest_us=1e6 * rest, energy_uj=energy_uj
        )

    def _simulated_us(self) -> float:
        totals = (session.total_statistics for session in self.sessions.values())
        return sum(total.time_us for total in totals if total is not None)

    def _energy_uj(self) -> float | None:
        """Of all runs so far; None where the machine file does not say."""
        totals = ((session.total_statistics, session) for session in self.sessions.values())
        found = [run_energy_uj(total, session) for total, session in totals if total is not None]
        known = [one for one in found if one is not None]
        return sum(known) if known else None

    def library_bytes(self, folder: Path) -> int:
        return exported_bytes(self.built.executable, folder)

    def about(self) -> Mapping[str, Any]:
        report = self.built.report
        assert report is not None
        digest = hashlib.sha256()
        for _, session in sorted(self.sessions.items()):
            digest.update(hashlib.sha256(session.program.to_bytes()).digest())
        return {
            "program_sha256": digest.hexdigest() if self.sessions else None,
            "regions": len(report.regions),
            "npu_mac_share": report.mac_share,
        }


@contextmanager
def _inside(sessions: list[Session]) -> Iterator[Callable[[], float]]:
    """Seconds that runs of ``sessions`` take inside of the block."""
    seconds = [0.0]

    def timed(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            try:
                return original(*arguments, **named)
            finally:
                seconds[0] += time.perf_counter() - begin

        return run

    for session in sessions:
        session.run = timed(session.run)  # type: ignore[method-assign]
    try:
        yield lambda: seconds[0]
    finally:
        for session in sessions:
            del session.run


class NpuRunner:
    """See `tvm_npu.comparison.protocol.Runner`."""

    name = "npu"
    has_machines = True
    has_door = True
    tunes = False

    def missing(self) -> str | None:
        return missing_tvm()

    def prepare(self, task: Task) -> None:
        import numba  # noqa: F401 - planners import it when they are first asked

        from tvm_npu.door.find import door

        door()

    def build(self, task: Task) -> OnNpu:
        assert task.machine is not None
        calibration = None if task.calibration is None else read_samples(Path(task.calibration))
        built = build_onnx(
            task.model, machine_from_dict(task.machine), calibration,
            shapes=task.shapes, precision=task.precision, planner=task.planner,
            tuning_log=task.plan_log,
        )  # fmt: skip
        return OnNpu(built, task.limits)


RUNNER = NpuRunner()
