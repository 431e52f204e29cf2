"""Errors of the runtime part."""

from __future__ import annotations


class RunError(Exception):
    """A program cannot run on what it was given."""
