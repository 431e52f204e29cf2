"""Errors of the command line."""

from __future__ import annotations


class CliError(Exception):
    """The job cannot be done; the message is what the user reads. Exit code 1."""


class UsageError(CliError):
    """The command line itself is wrong. Exit code 2."""
