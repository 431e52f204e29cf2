"""Scale words: the multiplier and the shift by which nmp_rescale requantizes."""

from __future__ import annotations

SCALE_SHIFT_BITS = 8
"""The shift to the right, unsigned, in the low bits of a word; the others are the multiplier,
unsigned: 24 bits, as many as the significand of the float32 in which models give scales."""
MULTIPLIER_BITS = 32 - SCALE_SHIFT_BITS
LARGEST_MULTIPLIER = (1 << MULTIPLIER_BITS) - 1
MOST_SCALE_SHIFT = 61
SCALED_ACCUMULATOR_BITS = 38
"""Of an accumulator that can be multiplied: the product and its rounding stay below 2**63."""
