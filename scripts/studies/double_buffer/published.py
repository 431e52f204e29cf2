"""Figures of the double-buffer paper (Cecconi et al. 2017)."""

from __future__ import annotations

LAYERS = (
    "conv1", "conv2", "conv3", "conv3_1", "conv4", "conv4_1", "conv5", "conv5_1", "conv6",
    "conv6_1",
)  # fmt: skip
NAIVE_MEMORY_SHARES = dict(
    zip(LAYERS, (0.86, 0.92, 0.96, 0.83, 0.91, 0.89, 0.88, 0.88, 0.80, 0.91), strict=True)
)
OPTIMAL_MEMORY_SHARES = dict(
    zip(LAYERS, (0.88, 0.98, 0.98, 0.86, 0.85, 0.88, 0.76, 0.86, 0.90, 0.91), strict=True)
)
"""Table 1."""

TRANSFER_RATIO = 5.0
"""Transfer time of naive tilings over that of optimal ones (section 6.2: about 5)."""

UNCACHED_SECONDS = {"none": 1573.0, "naive": 838.0, "optimal": 805.0}
UNCACHED_REDUCTION = 0.50
CACHED_REDUCTION = 0.34
"""Whole time without double buffers and with them (section 6.1)."""
