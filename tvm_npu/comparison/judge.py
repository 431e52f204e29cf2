"""Outputs against a reference and against right answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.answers import not_finite
from tvm_npu.codegen.passes.layer_errors import ratio_db
from tvm_npu.comparison.inputs import read_samples
from tvm_npu.errors import ComparisonError

Outputs = list[list[NDArray[Any]]]


@dataclass(frozen=True)
class Judgement:
    """``sqnr_db``: signal to noise of the worst output over all samples (None: nothing differs, or
    there is no other runner to compare with). ``agreement`` and ``top1`` are shares of images whose
    class, the largest value of the first output, is the reference's and the right one."""

    sqnr_db: float | None = None
    agreement: float | None = None
    top1: float | None = None


def read_outputs(path: Path) -> Outputs:
    """By sample, then by output."""
    return [[sample[name] for name in sorted(sample)] for sample in read_samples(path)]


def judge(
    found: Outputs, wanted: Outputs | None, labels: Sequence[int] | None
) -> Judgement:
    """``wanted`` None: ``found`` is the reference itself. ``labels`` has one a sample's image.

    ComparisonError for answers that are not finite: nothing can be said of them."""
    _check(found, "the answer")
    _check(wanted or [], "the reference's answer")
    classes = _classes(found)
    top1 = sqnr = agreement = None
    if labels is not None and classes is not None and len(labels) == len(classes):
        top1 = float(np.mean(classes == np.asarray(labels)))
    if wanted is not None:
        ratio = min(_sqnr_db(found, wanted, output) for output in range(len(wanted[0])))
        sqnr = ratio if np.isfinite(ratio) else None
        right = _classes(wanted)
        if classes is not None and right is not None and len(right) == len(classes):
            agreement = float(np.mean(classes == right))
    return Judgement(sqnr, agreement, top1)


def _check(answers: Outputs, whose: str) -> None:
    for number, outputs in enumerate(answers, 1):
        if bad := not_finite(outputs):
            raise ComparisonError(f"{whose} to sample {number} is no number: {bad}")


def _sqnr_db(found: Outputs, wanted: Outputs, output: int) -> float:
    signal = noise = 0.0
    for ours, theirs in zip(found, wanted, strict=True):
        want = np.float64(theirs[output])
        got = np.float64(ours[output]).reshape(want.shape)
        signal += float(np.square(want).sum())
        noise += float(np.square(want - got).sum())
    return ratio_db(signal, noise)


def _classes(outputs: Outputs) -> NDArray[np.int64] | None:
    """Of every image; None where the first output has none to choose from."""
    first = [np.asarray(sample[0]) for sample in outputs]
    if any(array.ndim < 2 or array.shape[0] == 0 for array in first):
        return None
    return np.concatenate([a.reshape(len(a), -1).argmax(axis=1) for a in first])
