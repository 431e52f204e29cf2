"""How many examples a property is tried with.

The suite tries half of what a test asks for: it must be quick, and its examples are others each
time. ``TVM_NPU_EXAMPLES=10 scripts/test tests/codegen`` tries ten times what tests ask for.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck

SHARE = float(os.environ.get("TVM_NPU_EXAMPLES", "0.5"))
LEAST = 5
FILTERED = [HealthCheck.filter_too_much, HealthCheck.too_slow]
"""For ``settings(suppress_health_check=...)`` of a test whose draws are often left out."""


def examples(number: int = 100) -> int:
    """For ``settings(max_examples=...)``: of ``number``, the share that is asked for."""
    return max(min(number, LEAST), round(number * SHARE))
