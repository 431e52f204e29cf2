"""What is known of one case after it has been run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studies.harness.errors import StudyError

RIGHT, WRONG, REFUSED, CRASHED, LATE = "right", "wrong", "refused", "crashed", "too late"
NOT_ASKED = "not asked"
SQNR_DB = {"int16": 35.0, "int8": None}
"""What outputs that passed a region must reach, by its precision; int8 is held to the bits."""


@dataclass(frozen=True)
class Row:
    """``stock`` and ``npu``: RIGHT and so on (of stock TVM also NOT_ASKED); ``regions`` of the NPU,
    the worst output's SQNR in dB, elements of regions' outputs that differ from the fixed-point
    reference, and why the NPU's answer is not right. ``settings`` are machine, planner and
    precision of a random graph."""

    name: str
    group: str
    stock: str
    npu: str
    regions: int = 0
    sqnr_db: float | None = None
    bits_off: int = 0
    reason: str = ""
    stock_reason: str = ""
    settings: str = ""

    @property
    def fault(self) -> bool:
        """Stock TVM is right and the NPU is not, or a bit is off."""
        return (self.stock == RIGHT and self.npu != RIGHT) or self.bits_off > 0


def read_rows(path: Path) -> list[Row]:
    """What a run wrote with --json. StudyError for another file."""
    try:
        return [Row(**one) for one in json.loads(path.read_text("utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise StudyError(f"{str(path)!r} holds no rows of this study: {error}") from error


def sqnr_db(wanted: NDArray[Any], found: NDArray[Any]) -> float:
    """200 at most; for a signal of zeros by the largest error; -200 for what is no number."""
    if not np.isfinite(found).all():
        return -200.0
    noise = float(np.sum((wanted.astype(np.float64) - found) ** 2))
    signal = float(np.sum(wanted.astype(np.float64) ** 2))
    if noise == 0.0:
        return 200.0
    return 10.0 * float(np.log10(max(signal, 1e-12) / noise))


def close(wanted: NDArray[Any], found: NDArray[Any]) -> bool:
    """As float32 operators may differ; equal for whole numbers."""
    if wanted.shape != found.shape:
        return False
    if wanted.dtype.kind not in "fc":
        return bool(np.array_equal(wanted, found))
    return bool(np.allclose(wanted, found, rtol=1e-3, atol=1e-4, equal_nan=True))


def first_line(error: BaseException) -> str:
    """The line of an error that says what is wrong, shortened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if "Check failed" in line or "Error" in line]
    line = (said or lines[-1:] or ["no further word"])[-1]
    return f"{type(error).__name__}: {line}"[:160]
