"""Options that say something about another one: given without it, they would change nothing, so
they are refused."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from tvm_npu.cli.errors import UsageError


def given(args: argparse.Namespace, option: str) -> bool:
    """Whether the command line has ``option``, as --trace-layers, whose default must be None, False
    or an empty list."""
    value = getattr(args, option.removeprefix("--").replace("-", "_"))
    return value is not None and value is not False and value != []


def only_with(
    args: argparse.Namespace, options: Iterable[str], partner: str, present: object, why: str
) -> None:
    """UsageError for one of ``options`` that is given where ``partner`` is not ``present``: it says
    ``why`` they belong together."""
    for option in options:
        if given(args, option) and not present:
            raise UsageError(f"argument {option}: only with {partner}, {why}")


def not_with(args: argparse.Namespace, options: Iterable[str], other: str, why: str) -> None:
    """UsageError for one of ``options`` that is given beside ``other``, which must be an option
    that is given: it says ``why`` they exclude each other."""
    for option in options:
        if given(args, option):
            raise UsageError(f"argument {option}: not allowed with {other}, {why}")
