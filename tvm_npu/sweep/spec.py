"""What a sweep is about: the validated contents of a specification file (TOML)."""

from __future__ import annotations

import os
from collections import Counter
from math import log
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from tvm_npu.calibration import CALIBRATION_IMAGES
from tvm_npu.codegen.plan import DEFAULT_PLANNER, planner_names
from tvm_npu.errors import NpuError
from tvm_npu.image_numbers import DIVISORS, FINITE, Numbers
from tvm_npu.sim.bounded_files import read_text_bounded
from tvm_npu.sim.machine_parts import Precision
from tvm_npu.sim.paths import as_path
from tvm_npu.sim.texts import MOST_FILE_BYTES, TextError, cause, did_you_mean, parse_toml, shown
from tvm_npu.sweep.outcome import ACCURACY, MEASURED, Outcome

Fidelity = Literal["predicted", "simulated", "checked"]
FIDELITIES: tuple[Fidelity, ...] = ("predicted", "simulated", "checked")
"""Each includes what the ones before find out."""
Objective = str
MOST_VALUES = 100_000
MOST_PROBLEMS = 20
"""That a message tells."""
ROUNDING = 1e-9
"""Of a step: by so much the last value of a range may lie behind its end."""
MOST_NAMES = 1000
"""Of each list in a specification that is no list of values: models, files, constraints, formulas;
so many expressions take a machine a tenth of a second."""
MOST_TRIED = 10_000_000
"""Combinations of keys that one sweep looks at."""
MOST_BATCH = 1_000_000
MOST_NEAR = 5
"""Files of a folder that a message names."""
Scalar = bool | int | float | str


class SweepError(NpuError, ValueError):
    """A sweep that cannot be run, or a specification that is none."""


def missing(library: str, user: str, extra: str = "sweep") -> SweepError:
    """What to say when ``library`` cannot be imported, which ``user`` (of sweeps) needs."""
    return SweepError(f"{library} is needed for {user}: pip install 'tvm-npu[{extra}]'")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Range(_Part):
    """Values from ``first`` to ``last``, ``step`` apart or each ``factor`` times the one before."""

    first: float = Field(alias="from", allow_inf_nan=False)
    last: float = Field(alias="to", allow_inf_nan=False)
    step: float | None = Field(default=None, gt=0)
    factor: float | None = Field(default=None, gt=1)

    @model_validator(mode="after")
    def _one_way(self) -> Range:
        if (self.step is None) == (self.factor is None):
            raise ValueError("give either step or factor")
        if self.factor is not None and self.first <= 0:
            raise ValueError("with a factor, from must be above 0")
        if self.last < self.first:
            raise ValueError(f"to ({self.last:g}) lies below from ({self.first:g})")
        if self._steps() > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES} values")
        return self

    def _steps(self) -> float:
        """From the first to the last value."""
        if self.step is not None:
            return (self.last - self.first) / self.step
        return (log(self.last) - log(self.first)) / log(self.factor or 1)

    def values(self) -> tuple[Scalar, ...]:
        """Integers where they are; each once."""
        found, value = [], self.first
        for number in range(1, int(self._steps() + ROUNDING) + 2):
            found.append(int(value) if float(value).is_integer() else value)
            value = self.first + number * self.step if self.step else value * (self.factor or 1)
        return tuple(dict.fromkeys(found))


Values = Annotated[list[Scalar], Field(min_length=1, max_length=MOST_VALUES)] | Range


class Formula(_Part):
    """An expression over keys of the machine (``cores.tles``), the outcome (``cycles``,
    ``time_us``, ``dram_bytes``, ``macs``, ``images``, ``frames_per_s``, ``top1``, ...), the
    ``batch`` and the precision's ``element_bytes``; ``source`` says where its numbers come from."""

    formula: str
    source: str


class Machines(_Part):
    """``files`` are machines as they are; ``keys`` vary a ``base`` machine, where all
    ``constraints`` (expressions over its keys) hold."""

    base: str | None = None
    keys: dict[str, Values] = Field(default={}, max_length=MOST_NAMES)
    constraints: list[str] = Field(default=[], max_length=MOST_NAMES)
    files: list[str] = Field(default=[], max_length=MOST_NAMES)

    @model_validator(mode="after")
    def _some(self) -> Machines:
        if not self.files and self.base is None:
            raise ValueError("give files, or a base machine with keys")
        if self.keys and self.base is None:
            raise ValueError("keys vary a base machine: give base")
        return self


def _within(numbers: Numbers) -> AfterValidator:
    def check(value: float) -> float:
        if value not in numbers:
            raise ValueError(f"{shown(value)} is not a number {numbers.words}")
        return value

    return AfterValidator(check)


Finite = Annotated[float, _within(FINITE)]
Divisor = Annotated[float, _within(DIVISORS)]


class Images(_Part):
    """What says how right a model is: a folder of ``images`` or a file with them, prepared as
    ``tvm-npu accuracy`` does by the options of these names, at most ``limit`` of them. The first
    ``calibration`` of them give ranges; the simulator runs the first ``simulated`` ones, too, and
    must agree."""

    images: str
    labels: str | None = None
    layout: Literal["NCHW", "NHWC"] | None = None
    preset: str | None = None
    scale: Finite | None = None
    mean: list[Finite] | None = Field(default=None, min_length=1)
    std: list[Divisor] | None = Field(default=None, min_length=1)
    bgr: bool | None = None
    fit: Literal["exact", "crop", "stretch"] = "exact"
    limit: int | None = Field(default=None, ge=1)
    calibration: int = Field(default=CALIBRATION_IMAGES, ge=1)
    simulated: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _preset(self) -> Images:
        from tvm_npu.accuracy.images import PRESETS

        if self.preset is None:
            return self
        if self.preset not in PRESETS:
            raise ValueError(f"preset {self.preset!r}: must be one of {', '.join(PRESETS)}")
        said = [one for one in ("scale", "mean", "std", "bgr") if getattr(self, one) is not None]
        if said:
            raise ValueError(f"preset: not with {', '.join(said)}, which it stands for")
        return self


class Search(_Part):
    """``grid`` takes every combination of keys, ``random`` and ``nsga2`` take ``designs`` of them
    (nsga2 in generations of ``population``). Designs that break one of ``require``, expressions as
    formulas are and over their values, too, are on no front."""

    method: Literal["grid", "random", "nsga2"] = "grid"
    designs: int = Field(default=256, ge=1, le=MOST_TRIED)
    population: int = Field(default=32, ge=4, le=MOST_TRIED)
    seed: int = Field(default=0, ge=0)
    objectives: list[Objective] = Field(
        default=["cycles", "dram_bytes"], min_length=1, max_length=MOST_NAMES
    )
    require: list[str] = Field(default=[], max_length=MOST_NAMES)
    promote: float | Literal["front"] = "front"
    """Which designs go from one fidelity to the next: the front, or a share of all, the best of
    them by their rank."""

    @model_validator(mode="after")
    def _share(self) -> Search:
        if isinstance(self.promote, float) and not 0 < self.promote <= 1:
            raise ValueError(f"promote: {self.promote:g} is no share above 0 up to 1")
        return self


class SweepSpec(_Part):
    """``models`` are ONNX files or names of `tvm_npu.models`; ``fidelity`` are the steps that
    designs go through, each on what `Search.promote` leaves. ``batches`` are numbers of runs of
    each model that are given together. ``accuracy`` is by model."""

    models: list[str] = Field(min_length=1, max_length=MOST_NAMES)
    machine: Machines
    planners: list[str] = Field(default=[DEFAULT_PLANNER], min_length=1, max_length=MOST_NAMES)
    precisions: list[Precision] = Field(default=[], max_length=MOST_NAMES)
    batches: list[Annotated[int, Field(ge=1, le=MOST_BATCH)]] = Field(
        default=[1], min_length=1, max_length=MOST_NAMES
    )
    accuracy: dict[str, Images] = Field(default={}, max_length=MOST_NAMES)
    fidelity: list[Fidelity] = Field(default=["predicted"], min_length=1, max_length=MOST_NAMES)
    outcome: dict[str, Formula] = Field(default={}, max_length=MOST_NAMES)
    search: Search = Search()

    @model_validator(mode="after")
    def _known(self) -> SweepSpec:
        for name in self.planners:
            if name not in planner_names():
                raise ValueError(f"planner {name!r}: must be one of {', '.join(planner_names())}")
        if sorted(self.fidelity, key=FIDELITIES.index) != self.fidelity:
            raise ValueError(f"fidelity: must be in the order {', '.join(FIDELITIES)}")
        taken = set(self.outcome) & {*Outcome().to_dict(), "batch", "element_bytes"}
        if taken:
            raise ValueError(f"outcome {min(taken)!r}: the name is that of a measured outcome")
        known = (*MEASURED, *ACCURACY, *self.outcome)
        for name in self.search.objectives:
            if name not in known:
                raise ValueError(f"objective {name!r}: must be one of {', '.join(known)}")
        listed: dict[str, list[Any]] = {
            "models": self.models, "planners": self.planners, "precisions": self.precisions,
            "batches": self.batches,
        }  # fmt: skip
        for field, given in listed.items():
            value, count = Counter(given).most_common(1)[0] if given else ("", 0)
            if count > 1:
                raise ValueError(f"{field}: {value!r} is given twice")
        self._check_accuracy()
        return self

    def _check_accuracy(self) -> None:
        for name in self.accuracy:
            if name not in self.models:
                known = ", ".join(self.models)
                raise ValueError(f"accuracy {name!r}: no model of the sweep; it has {known}")
        asked = [name for name in self.search.objectives if name in ACCURACY]
        without = [name for name in self.models if name not in self.accuracy]
        if asked and without:
            raise ValueError(
                f"objective {asked[0]!r}: model {without[0]!r} has no images; give "
                f'[accuracy."{without[0]}"] with images'
            )


EXPECTED = (
    "a sweep is a TOML file that names models and machines; 'tvm-npu sweep --help' shows one"
)


def _near(path: Path) -> str:
    """The sweep that may be meant by ``path``, which has none."""
    folder = path if os.path.isdir(path) else path.parent
    if os.path.isfile(path) or not os.access(folder, os.R_OK | os.X_OK):
        return ""
    names = sorted(one.name for one in folder.glob("*.toml"))
    if folder == path:
        return f" (it has {', '.join(names[:MOST_NEAR])})" if names else ""
    return did_you_mean(path.name, names)


def read_spec(path: str | Path) -> SweepSpec:
    """The specification in a TOML file; files that it names are sought beside it. Raises
    SweepError with every problem."""
    path = as_path(path, "a sweep's path", SweepError)
    try:
        values = parse_toml(read_text_bounded(path, MOST_FILE_BYTES))
    except (OSError, UnicodeDecodeError, TextError) as error:
        raise SweepError(
            f"cannot read sweep {str(path)!r}: {cause(error)}{_near(path)}; {EXPECTED}"
        ) from error
    spec = spec_from_dict(values, str(path))
    beside = path.parent
    machine = spec.machine.model_copy(
        update={"files": [_beside(name, beside) for name in spec.machine.files],
                "base": spec.machine.base and _beside(spec.machine.base, beside)}
    )  # fmt: skip
    models = [_beside(name, beside) for name in spec.models]
    accuracy = {
        _beside(name, beside): one.model_copy(
            update={"images": _beside(one.images, beside),
                    "labels": one.labels and _beside(one.labels, beside)}
        )
        for name, one in spec.accuracy.items()
    }  # fmt: skip
    return spec.model_copy(update={"models": models, "machine": machine, "accuracy": accuracy})


def spec_from_dict(values: dict[str, Any], origin: str = "sweep") -> SweepSpec:
    """Raises SweepError with every problem."""
    try:
        return SweepSpec.model_validate(values)
    except ValidationError as error:
        problems = []
        found = error.errors(include_url=False)
        for item in found[:MOST_PROBLEMS]:
            where = ".".join(str(part) for part in item["loc"])
            text = item["ctx"]["error"] if item["type"] == "value_error" else item["msg"]
            problems.append(f"{where}: {text}" if where else str(text))
        if len(found) > MOST_PROBLEMS:
            problems.append(f"and {len(found) - MOST_PROBLEMS} more")
        lacks = any(item["type"] == "missing" for item in found)
        if lacks:
            problems.append(EXPECTED)
        raise SweepError(f"sweep {origin}: " + "; ".join(problems)) from error


def _beside(name: str, folder: Path) -> str:
    found = str(folder / name)
    return found if os.path.exists(found) else name  # pathlib raises for names that are too long
