"""Answers of models that cannot be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def not_finite(outputs: Sequence[NDArray[Any]]) -> str | None:
    """The first of a sample's outputs with values that are NaN or infinite; None: there is none."""
    for number, values in enumerate(outputs):
        bad = values[~np.isfinite(values)]
        if bad.size:
            return f"output {number} has {bad.size} of {values.size} values like {bad.flat[0]}"
    return None
