"""What comes out of a model on a design, and which way is better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

MEASURED = ("cycles", "time_us", "dram_bytes", "frames_per_s")
"""Objectives that every outcome has; formulas add theirs."""
RIGHT = ("top1", "top5")
"""Shares of images, of models whose images have labels."""
ACCURACY = (*RIGHT, "agreement", "sqnr_db")
"""Objectives of models that have images: shares of images, and a ratio."""
MAXIMIZED = frozenset({"frames_per_s", *ACCURACY})
"""Objectives that should be large; all others should be small."""
LARGEST_SQNR_DB = 300.0
"""Stands where nothing differs from float."""


@dataclass(frozen=True)
class Outcome:
    """``fault``: why there is none. ``wrong_elements`` are those of the first image that differ
    from the reference (None: nobody looked). Fields of `ACCURACY` are None for a model without
    images. ``images`` says how many the figures are of, and ``image_cycles`` what one image takes,
    by how many of them regions get in a run of the model: [(images, cycles), ...]."""

    cycles: float | None = None
    time_us: float | None = None
    dram_bytes: int | None = None
    macs: int | None = None
    wrong_elements: int | None = None
    fault: str | None = None
    frames_per_s: float | None = None
    top1: float | None = None
    top5: float | None = None
    agreement: float | None = None
    sqnr_db: float | None = None
    images: int | None = None
    image_cycles: tuple[tuple[int, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """What rows show and formulas can name."""
        values = asdict(self)
        del values["image_cycles"]
        return values

    def of_batch(self, batch: int, devices: int) -> Outcome:
        """Of ``batch`` runs of the model that are given together, where self is that of one on one
        device: of each region's images ``devices`` run beside each other, the rest behind them
        (`runtime.session.Session`)."""
        if self.cycles is None or self.time_us is None:
            return self
        images = 1 if self.images is None else self.images
        rounds = [
            (one, -(-count * batch // devices))
            for count, one in self.image_cycles or ((images, self.cycles / max(images, 1)),)
        ]
        cycles = sum(one * times for one, times in rounds)
        # equal for batches that keep all devices at work, to the last bit
        run_us = self._time_us(sum(one * (times / batch) for one, times in rounds))
        return replace(
            self,
            cycles=cycles,
            time_us=self._time_us(cycles),
            dram_bytes=None if self.dram_bytes is None else self.dram_bytes * batch,
            macs=None if self.macs is None else self.macs * batch,
            frames_per_s=images / run_us * 1e6 if run_us else None,
            images=images * batch,
            image_cycles=(),
        )

    def _time_us(self, cycles: float) -> float:
        """At the clock that self has its time from."""
        return cycles / self.cycles * (self.time_us or 0.0) if self.cycles else 0.0

    def with_accuracy(self, found: Outcome) -> Outcome:
        """self with how right ``found`` says the model is, or with its fault."""
        if self.fault is not None:
            return self
        if found.fault is not None:
            return Outcome(fault=found.fault)
        return replace(self, **{name: getattr(found, name) for name in ACCURACY})


def mean(objective: str, values: Sequence[float]) -> float:
    """Of an objective over models: of ratios in dB the mean, of all else the geometric mean (0
    where a value is; NaN: there is none, as of values that differ where one is below 0)."""
    if len(set(values)) == 1:
        return values[0]
    if objective == "sqnr_db":
        return sum(values) / len(values)
    if any(value < 0 for value in values):
        return math.nan
    if 0 in values:
        return 0.0
    return math.exp(sum(math.log(value) for value in values) / len(values))


def means_said(objectives: Sequence[str]) -> str:
    """A sentence that says what `mean` makes of the objectives."""
    others = [name for name in objectives if name != "sqnr_db"]
    if len(others) == len(objectives):
        return "Objectives are geometric means over the models."
    if not others:
        return "sqnr_db is the arithmetic mean over the models."
    return "Objectives are geometric means over the models, sqnr_db the arithmetic mean."


def is_within(objective: str, value: float, limit: float) -> bool:
    """Whether a value is at most ``limit``, or at least so much of what should be large."""
    return value >= limit if objective in MAXIMIZED else value <= limit
