"""Errors of the reproductions."""

from __future__ import annotations


class ReproductionError(Exception):
    """A reproduction that cannot be done, or whose values are wrong."""
