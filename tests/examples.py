"""How many examples a property is tried with.

The suite tries half of what a test asks for: it must be quick, and its examples are others each
time. ``TVM_NPU_EXAMPLES=10 scripts/test tests/codegen`` tries ten times what tests ask for.
"""

from __future__ import annotations

import os

SHARE = float(os.environ.get("TVM_NPU_EXAMPLES", "0.5"))
LEAST = 5


def examples(number: int = 100) -> int:
    """For ``settings(max_examples=...)``: of ``number``, the share that is asked for."""
    return max(min(number, LEAST), round(number * SHARE))
