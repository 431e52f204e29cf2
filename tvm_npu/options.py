"""What a user can choose about a compilation; travels with each region as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any, Literal, get_args

from tvm_npu.codegen.backend import Images
from tvm_npu.codegen.backends import backend_of, machine_apart
from tvm_npu.codegen.errors import BackendError, PlanningError
from tvm_npu.codegen.plan import (
    DEFAULT_PLANNER,
    NO_LIMITS,
    TileLimits,
    log_fault,
    planner_fault,
    planner_names,
    tuned_planner_names,
)
from tvm_npu.errors import TargetError
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.errors import MachineError
from tvm_npu.sim.machine_file import load_machine, machine_from_dict
from tvm_npu.sim.machine_parts import ELEMENT_BYTES, Precision
from tvm_npu.sim.paths import as_path
from tvm_npu.sim.texts import shown

DEFAULT_MACHINE = "nmp-4x8"
DEFAULT_MAX_LOSS = 0.01
"""Noise of the outputs as a share of their signal's power: 20 dB."""
Quantization = Literal["plain", "equalised", "bias-corrected"]
"""What calibration may change for int8: nothing; factors of channels and tensors; these, and
biases."""
Offload = Literal["paying", "all"]
"""Regions without weights and windows: where they pay (`door.paying`), or whatever they cost."""


@dataclass(frozen=True)
class NpuOptions:
    """Machine and choices of one compilation.

    ``percentile`` is the share of values (in percent) that calibration ranges keep, None for all;
    ``seed`` feeds synthetic calibration; ``tile_limits`` are fields of the planner's TileLimits;
    ``cpu_target`` is the TVM target string that the glue code around a region is compiled for;
    ``tuning_log`` is the absolute path of the log that the planner plans by, if it is such a one;
    ``images`` is what the clusters of a device do with a batch: "together" they share each image,
    "apart" a run computes an image in each; ``offload`` are the regions to take among those
    without weights: "paying" or "all". ``quantization`` is what calibration changes in the layers
    of int8 regions, whose meaning stays the same: with "equalised" every tensor's range ends where
    that of its integers does, with "bias-corrected" also what rounding shifts means by goes into
    biases. ``int16_layers`` are layers, by their names or those of operators that they came from,
    that compute in int16 in int8 regions; with ``max_loss`` others join them until the noise of
    each region's outputs, over calibration data, is at most this share of their signal's power
    (0.01: a signal-to-noise ratio of 20 dB), at the least predicted time.
    """

    machine: MachineDescription
    precision: Precision
    planner: str = DEFAULT_PLANNER
    percentile: float | None = None
    seed: int = 0
    tile_limits: dict[str, Any] | None = field(default=None, hash=False)
    cpu_target: str = "llvm"
    tuning_log: str | None = None
    images: Images = "together"
    offload: Offload = "paying"
    quantization: Quantization = "plain"
    int16_layers: tuple[str, ...] = ()
    max_loss: float | None = None

    def __post_init__(self) -> None:
        _check_choice("precision", self.precision, tuple(ELEMENT_BYTES))
        _check_choice("planner", self.planner, (*planner_names(), *tuned_planner_names()))
        fault = planner_fault(self.planner, self.machine)
        if fault is not None:
            raise TargetError(fault)
        fault = log_fault(self.planner, self.tuning_log)
        if fault is not None:
            raise TargetError(f"{fault} (option tuning_log)")
        _check_choice("offload", self.offload, get_args(Offload))
        _check_choice("images", self.images, get_args(Images))
        if self.images == "apart":
            try:
                machine_apart(self.machine)
            except BackendError as error:
                raise TargetError(f"option images: {error}") from error
        _check_choice("quantization", self.quantization, get_args(Quantization))
        self._check_int16_layers()
        if self.percentile is not None:
            _check_number("percentile", self.percentile)
            if not 0.0 < self.percentile <= 100.0:
                raise TargetError(f"percentile {self.percentile}: must be above 0 and at most 100")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise TargetError(f"seed {shown(self.seed)}: must be an integer of at least 0")
        if not isinstance(self.cpu_target, str):
            raise TargetError(f"cpu_target {shown(self.cpu_target)}: must be a text")
        try:
            self.limits  # noqa: B018
        except (TypeError, PlanningError) as error:
            raise TargetError(f"tile limits {self.tile_limits}: {error}") from error

    def _check_int16_layers(self) -> None:
        for name in self.int16_layers:
            if not isinstance(name, str):
                raise TargetError(f"int16_layers has {shown(name)}: must be names of layers")
        if self.max_loss is not None:
            _check_number("max_loss", self.max_loss)
            if not 0.0 < self.max_loss < 1.0:
                raise TargetError(f"max_loss {self.max_loss}: must be above 0 and below 1")
        if not self.int16_layers and self.max_loss is None:
            return
        if self.precision != "int8":
            raise TargetError(
                f"layers in int16 among those of precision {self.precision!r}: they are chosen for "
                "precision 'int8' (int16_layers) or 'auto' (max_loss)"
            )
        if not backend_of(self.machine).mixes_precisions:
            raise TargetError(
                f"machine {self.machine.name!r} computes all layers of a program with one "
                "precision; take precision 'int8' or 'int16'"
            )

    @property
    def limits(self) -> TileLimits:
        return TileLimits(**self.tile_limits) if self.tile_limits else NO_LIMITS

    @property
    def tuning_log_path(self) -> Path | None:
        return None if self.tuning_log is None else Path(self.tuning_log)

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.precision]

    def to_json(self) -> str:
        values = {**asdict(self), "machine": self.machine.model_dump()}
        return json.dumps(values, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> NpuOptions:
        values = json.loads(text)
        values["int16_layers"] = tuple(values["int16_layers"])
        machine = machine_from_dict(values.pop("machine"), origin="region options")
        return NpuOptions(machine=machine, **values)


def _check_choice(name: str, value: object, known: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise TargetError(f"{name} {shown(value)}: must be one of {', '.join(known)}")


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TargetError(f"{name} {shown(value)}: must be a number")


def _layer_names(given: object) -> tuple[str, ...]:
    """A text is no sequence of names, though Python takes it for one of letters."""
    if given is None:
        return ()
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TargetError(f"int16_layers {shown(given)}: must be a list of names of layers")
    return tuple(given)


def make_options(
    machine: MachineDescription | str | Path = DEFAULT_MACHINE,
    *,
    precision: Precision | Literal["auto"] | None = None,
    planner: str | None = None,
    percentile: float | None = None,
    seed: int | None = None,
    tile_limits: dict[str, Any] | None = None,
    cpu_target: str = "llvm",
    tuning_log: str | Path | None = None,
    images: Images | None = None,
    offload: Offload | None = None,
    quantization: Quantization | None = None,
    int16_layers: Sequence[str] | None = None,
    max_loss: float | None = None,
) -> NpuOptions:
    """Options with the machine's defaults filled in. ``precision`` "auto" is int8 with layers in
    int16, up to ``max_loss`` (left out: DEFAULT_MAX_LOSS).

    Raises TargetError for an unknown machine, a value out of its range, or a tuning log that is
    missing or none.
    """
    if not isinstance(machine, MachineDescription):
        try:
            machine = load_machine(machine)
        except MachineError as error:
            raise TargetError(str(error)) from error
    if tuning_log is not None:
        from tvm_npu.codegen.tune.errors import TuningLogError
        from tvm_npu.codegen.tune.history import history

        tuning_log = str(as_path(tuning_log, "tuning_log", TargetError).absolute())
        try:
            history(Path(tuning_log))
        except TuningLogError as error:
            raise TargetError(str(error)) from error
    if precision == "auto":
        precision, max_loss = "int8", DEFAULT_MAX_LOSS if max_loss is None else max_loss
    elif max_loss is not None:
        raise TargetError(
            f"max_loss {shown(max_loss)} with precision {shown(precision)}: it is for 'auto'"
        )
    return NpuOptions(
        machine=machine,
        precision=machine.default_precision if precision is None else precision,
        planner=DEFAULT_PLANNER if planner is None else planner,
        percentile=percentile,
        seed=0 if seed is None else seed,
        tile_limits=tile_limits,
        cpu_target=cpu_target,
        tuning_log=tuning_log,
        images="together" if images is None else images,
        offload="paying" if offload is None else offload,
        quantization="plain" if quantization is None else quantization,
        int16_layers=_layer_names(int16_layers),
        max_loss=max_loss,
    )
