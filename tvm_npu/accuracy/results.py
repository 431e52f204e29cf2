"""What is measured, and what comes out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.calibration import Sample
from tvm_npu.codegen.passes.layer_errors import LayerError
from tvm_npu.sim.frames import Tabular

LOW_SQNR_DB = 15.0
"""Below this, outputs have little to do with those of float."""
SCHEMA = "tvm-npu accuracy 1"


@dataclass(frozen=True)
class Labelled:
    """One sample of the model's inputs, the right class of each of its images, if known, and the
    outputs that the model has for it in float, if known."""

    sample: Sample
    labels: tuple[int, ...] | None = None
    wanted: tuple[NDArray[Any], ...] | None = None


@dataclass(frozen=True)
class RegionErrors:
    """The layers of one region, worst own error first."""

    region: str
    layers: tuple[LayerError, ...]


@dataclass(frozen=True)
class BesideSource:
    """A quantized model on the NPU beside its own arithmetic (real numbers, rounded where the model
    says scales): the share of the elements of regions' outputs that are at most one step of the
    model apart, counts of right classes of the source, and of images with the same class."""

    within_one_step: float
    top1_source: int
    agreement: int


@dataclass(frozen=True)
class Accuracy(Tabular):
    """Counts of images. ``sqnr_db`` is the signal to noise of the worst output against float, where
    the signal of an output of integers is its distance from their mean; ``agreement`` counts images
    with the class that float gives; classes are those of the first output. ``cycles`` is the
    simulator's count for one inference (None: not simulated), ``simulated`` how many samples it
    agreed on. ``within_one`` is the share of the elements of outputs of integers (None: there are
    none) that differ from float by at most 1. ``source`` is there for models that say scales;
    float then means real numbers that regions do not round."""

    images: int
    labelled: int
    top1_float: int
    top1_npu: int
    top5_float: int
    top5_npu: int
    agreement: int
    sqnr_db: float
    simulated: int
    cycles: float | None
    regions: tuple[RegionErrors, ...] = ()
    source: BesideSource | None = None
    within_one: float | None = None

    shown_columns = ("layer", "kind", "own_db", "accumulated_db", "clipped_share", "advice")

    def flat_rows(self) -> list[dict[str, Any]]:
        """A row for each layer, worst own error first in each region; ratios as in `to_dict`."""
        return [
            {"region": region["region"], **layer}
            for region in self.to_dict()["regions"]
            for layer in region["layers"]
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values; ratios that are infinite (nothing differs) are None."""
        values = asdict(self)
        values["sqnr_db"] = _finite(self.sqnr_db)
        for region in values["regions"]:
            for layer in region["layers"]:
                layer["own_db"] = _finite(layer["own_db"])
                layer["accumulated_db"] = _finite(layer["accumulated_db"])
        return {"schema": SCHEMA, **values}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
