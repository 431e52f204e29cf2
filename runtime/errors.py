"""Errors of the runtime part."""

from __future__ import annotations


class RunError(Exception):
    """A program cannot run with the inputs that it was given."""
