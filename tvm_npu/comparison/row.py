"""One line of a comparison: who ran what where, and what it cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tvm_npu.codegen.plan import DEFAULT_PLANNER
from tvm_npu.comparison.task import Measured, Task


@dataclass(frozen=True)
class Row:
    """``door`` is "" for runners without TVM. Values that are not known, or mean nothing for the
    runner, are None. ``latency_us`` and ``energy_uj`` are of one inference of the model's batch;
    ``rest_us`` is measured where ``latency_us`` is simulated. ``error`` is why the runner has no
    values."""

    runner: str
    door: str
    machine: str | None
    precision: str
    planner: str | None
    threads: int
    trials: int
    latency_us: float | None = None
    simulated: bool | None = None
    low_us: float | None = None
    high_us: float | None = None
    repeats: int | None = None
    rest_us: float | None = None
    energy_uj: float | None = None
    images_per_s: float | None = None
    compile_s: float | None = None
    compile_cpu_s: float | None = None
    phases_s: dict[str, float] = field(default_factory=dict)
    machine_code_s: float | None = None
    library_bytes: int | None = None
    imports_rss_bytes: int | None = None
    compile_rss_bytes: int | None = None
    peak_rss_bytes: int | None = None
    weight_bytes: int | None = None
    sqnr_db: float | None = None
    agreement: float | None = None
    top1: float | None = None
    regions: int | None = None
    npu_mac_share: float | None = None
    program_sha256: str | None = None
    output_sha256: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    error: str | None = None

    @property
    def name(self) -> str:
        """Short: the runner and its door, or the machine and how it is used."""
        if self.machine is None:
            parts = [self.runner]
        else:
            planner = None if self.planner == DEFAULT_PLANNER else self.planner
            parts = [self.machine, self.precision, planner or ""]
        trials = f"{self.trials} trials" if self.trials else ""
        return " ".join(part for part in (*parts, self.door, trials) if part)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def flat(self) -> dict[str, Any]:
        """Numbers and texts alone, without versions; times of phases as ``phase_<name>_s``."""
        values = self.to_dict()
        phases = values.pop("phases_s")
        del values["versions"]
        times = {f"phase_{name.replace(' ', '_')}_s": phases[name] for name in sorted(phases)}
        return {**values, **times}


def _named(task: Task) -> dict[str, Any]:
    return {
        "runner": task.runner,
        "machine": task.machine["name"] if task.machine else None,
        "precision": task.precision or "float32",
        "planner": task.planner,
        "threads": task.threads,
        "trials": task.trials,
    }


def failed_row(task: Task, door: str, error: str) -> Row:
    return Row(**_named(task), door=door, error=error)


def measured_row(task: Task, door: str, found: Measured) -> Row:
    """Accuracies come later."""
    values = asdict(found)
    cost = values.pop("cost")
    rate = 1e6 * task.images / cost["latency_us"] if cost["latency_us"] else None
    return Row(**_named(task), door=door, **values, **cost, images_per_s=rate)
