"""What is counted of a model's outputs: sums over images, which can be joined."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.accuracy.results import Accuracy, BesideSource, RegionErrors
from tvm_npu.answers import not_finite
from tvm_npu.codegen.passes.layer_errors import ratio_db
from tvm_npu.errors import AccuracyError


@dataclass
class Power:
    """Of one output: sums over its elements."""

    square: float = 0.0
    total: float = 0.0
    noise: float = 0.0
    count: int = 0
    has_zero: bool = True

    def add(self, wanted: NDArray[Any], found: NDArray[Any]) -> None:
        real = wanted.astype(np.float64)
        self.square += float(np.square(real).sum())
        self.total += float(real.sum())
        self.noise += float(np.square(found - real).sum())
        self.count += real.size
        self.has_zero = wanted.dtype.kind == "f"

    def join(self, other: Power) -> None:
        self.square += other.square
        self.total += other.total
        self.noise += other.noise
        self.count += other.count
        self.has_zero = other.has_zero

    @property
    def ratio_db(self) -> float:
        """Of integers nobody says here which one means zero; they are taken from their mean."""
        offset = 0.0 if self.has_zero else self.total * self.total / self.count
        return ratio_db(self.square - offset, self.noise)


@dataclass
class Counts:
    """Of one sample, or of several. The first of all results are those of float, the last those of
    the NPU; a quantized model's own stand between them."""

    images: int = 0
    labelled: int = 0
    top1: list[int] = field(default_factory=lambda: [0, 0, 0])
    top5: list[int] = field(default_factory=lambda: [0, 0, 0])
    agreement: list[int] = field(default_factory=lambda: [0, 0, 0])
    powers: list[Power] = field(default_factory=list)
    elements: int = 0
    near: int = 0
    whole: int = 0
    whole_near: int = 0

    @classmethod
    def of(
        cls, results: list[list[NDArray[Any]]], labels: tuple[int, ...] | None, number: int
    ) -> Counts:
        """Of the outputs of sample ``number``. AccuracyError for another number of labels, and for
        answers that are not finite."""
        sides = ["in float", *["by the model's own rounding"][: len(results) - 2], "on the NPU"]
        for side, outputs in zip(sides, results, strict=True):
            if bad := not_finite(outputs):
                raise AccuracyError(
                    f"sample {number}, {side}: {bad}; errors are those of finite numbers. Give "
                    "samples for which the model computes such"
                )
        found = cls(powers=[Power() for _ in results[0]])
        for power, wanted, got in zip(found.powers, results[0], results[-1], strict=True):
            power.add(wanted, got)
            if wanted.dtype.kind in "iu":
                found.whole += wanted.size
                found.whole_near += int((np.abs(got - wanted.astype(np.float64)) <= 1).sum())
        firsts = [np.atleast_1d(outputs[0]) for outputs in results]
        scores = [one.reshape(len(one), -1) for one in firsts]
        ranked = [
            np.argsort(-one.astype(np.float64), axis=1, kind="stable")[:, :5] for one in scores
        ]
        found.images = len(ranked[0])
        for which, classes in enumerate(ranked):
            found.agreement[which] = int((classes[:, 0] == ranked[-1][:, 0]).sum())
        if labels is None:
            return found
        if results[0][0].ndim == 0:
            raise AccuracyError(
                f"sample {number} has labels, but the model's first output has rank 0 and says no "
                "class; leave the labels out"
            )
        if len(labels) != found.images:
            raise AccuracyError(
                f"sample {number}: {len(labels)} labels for {found.images} images; each needs one"
            )
        right = np.array(labels)[:, None]
        found.labelled = len(labels)
        for which, classes in enumerate(ranked):
            found.top1[which] = int((classes[:, :1] == right).sum())
            found.top5[which] = int((classes == right).sum())
        return found

    def join(self, other: Counts) -> None:
        """Adds those of a later sample."""
        for name in ("images", "labelled", "elements", "near", "whole", "whole_near"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("top1", "top5", "agreement"):
            both = zip(getattr(self, name), getattr(other, name), strict=True)
            setattr(self, name, [mine + more for mine, more in both])
        self.powers = self.powers or [Power() for _ in other.powers]
        for power, more in zip(self.powers, other.powers, strict=True):
            power.join(more)

    def result(
        self,
        is_quantized: bool,
        simulated: int,
        cycles: float | None,
        regions: tuple[RegionErrors, ...],
    ) -> Accuracy:
        npu, source = 1, None
        if is_quantized:
            npu, share = 2, self.near / self.elements if self.elements else 1.0
            source = BesideSource(share, self.top1[1], self.agreement[1])
        return Accuracy(
            self.images, self.labelled, self.top1[0], self.top1[npu], self.top5[0],
            self.top5[npu], self.agreement[0], min(power.ratio_db for power in self.powers),
            simulated, cycles, regions, source,
            self.whole_near / self.whole if self.whole else None,
        )  # fmt: skip
