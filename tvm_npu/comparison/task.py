"""What a measuring process is asked and answers, as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter

from tvm_npu.sim.limits import DEFAULT, Limits


@dataclass(frozen=True)
class Task:
    """One measurement. ``model`` is an ONNX file; ``shapes`` are those of all its inputs, and
    ``images`` is how many one run of it takes; ``samples`` and ``calibration`` are files of
    `inputs.write_samples` (None: random input gives ranges); ``outputs`` is where the outputs for
    all samples go. ``machine`` is a description's values, None for runners without one;
    ``plan_log`` is a file of ``tvm-npu tune`` for planners that take one. ``log`` is the folder of
    a stock tuner. ``limits`` bound what simulators take."""

    runner: str
    model: str
    shapes: dict[str, tuple[int, ...]]
    samples: str
    outputs: str
    calibration: str | None = None
    images: int = 1
    threads: int = 1
    repeats: int = 10
    machine: dict[str, Any] | None = None
    precision: str | None = None
    planner: str | None = None
    plan_log: str | None = None
    trials: int = 0
    log: str | None = None
    limits: Limits = DEFAULT

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(text: str) -> Task:
        return TypeAdapter(Task).validate_json(text)


@dataclass(frozen=True)
class Cost:
    """One inference, in microseconds. ``simulated``: on the simulated machine, else the median of
    ``repeats`` on this CPU, between ``low_us`` and ``high_us`` in the middle half of them. ``rest``
    is what operators that stay on the CPU took, measured. ``energy_uj`` is of the NPU's part, where
    the machine file says what things cost."""

    latency_us: float
    simulated: bool
    repeats: int
    low_us: float | None = None
    high_us: float | None = None
    rest_us: float | None = None
    energy_uj: float | None = None


@dataclass(frozen=True)
class Measured:
    """The answer. ``compile_s`` is from the model's file to an executable, by phase in
    ``phases_s``; ``compile_cpu_s`` is the CPU time of all threads meanwhile; ``machine_code_s`` is
    what numba took meanwhile, which none of them contains. Memory is resident: after all imports,
    at most while compiling, at most in all."""

    cost: Cost
    compile_s: float
    compile_cpu_s: float
    phases_s: dict[str, float]
    machine_code_s: float
    library_bytes: int | None
    imports_rss_bytes: int
    compile_rss_bytes: int
    peak_rss_bytes: int
    weight_bytes: int
    output_sha256: str
    program_sha256: str | None = None
    regions: int | None = None
    npu_mac_share: float | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def from_json(text: str) -> Measured:
        return TypeAdapter(Measured).validate_json(text)
