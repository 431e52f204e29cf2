"""Errors of the studies."""

from __future__ import annotations


class StudyError(Exception):
    """A study that cannot be done, or whose values are wrong. Exit code 1."""
