"""Filter words: what the bias buffer holds of a filter that shifts by itself."""

from __future__ import annotations

FILTER_BIAS_BITS = 26
"""The bias, signed, in the low bits of a word; the others are the shift that the filter has beyond
the register SHIFT, unsigned."""
MOST_FILTER_SHIFT = (1 << (32 - FILTER_BIAS_BITS)) - 1
