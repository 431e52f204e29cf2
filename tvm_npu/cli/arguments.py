"""Number types for argparse, with its own wording of what is wrong."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tvm_npu.image_numbers import DIVISORS, FINITE
from tvm_npu.sim.limits import DEFAULT, MOST, LimitError, Limits
from tvm_npu.sim.texts import shown


class Names:
    """``choices`` of an option that are known only when somebody asks for them."""

    def __init__(self, load: Callable[[], Sequence[str]]) -> None:
        self._load = load

    def __contains__(self, name: Any) -> bool:
        return name in self._load()

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())


def add_limits_argument(parser: argparse.ArgumentParser) -> None:
    """``--limits``: what a program may take of the host, as `Limits`."""
    parser.add_argument(
        "--limits", type=_limits, default=DEFAULT, metavar="NAME=N,...",
        help="what a program may take: work (products, elements and bytes; scalar instructions "
        "are none), instructions (of all kinds), dram_bytes, host_bytes; k, m, g, t for powers of "
        "1024",
    )  # fmt: skip


def _limits(text: str) -> Limits:
    try:
        return Limits.parse(text)
    except LimitError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_shape_argument(parser: argparse.ArgumentParser) -> None:
    """``--shape``, for `onnx_file.parse_shapes`."""
    parser.add_argument(
        "--shape", action="append", default=[], metavar="NAME=N,C,H,W",
        help="shape of an input that the model leaves open; once for each such input",
    )  # fmt: skip


def positive(text: str) -> int:
    """An integer of at least 1."""
    return _at_least(text, 1)


def non_negative(text: str) -> int:
    """An integer of at least 0."""
    return _at_least(text, 0)


def percentile(text: str) -> float:
    """A number above 0 and at most 100."""
    return _number(text, lambda value: 0.0 < value <= 100.0, "above 0 and at most 100")


def share(text: str) -> float:
    """A number from 0 to 1."""
    return _number(text, lambda value: 0.0 <= value <= 1.0, "from 0 to 1")


def finite(text: str) -> float:
    """A number that float32 has."""
    return _number(text, FINITE.__contains__, FINITE.words)


def divisor(text: str) -> float:
    """A number above 0 that float32 has."""
    return _number(text, DIVISORS.__contains__, DIVISORS.words)


def _number(text: str, is_allowed: Callable[[float], bool], allowed: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not is_allowed(value):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a number {allowed}")
    return value


def _at_least(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not an integer of at least {least}")
    if value > MOST:
        raise argparse.ArgumentTypeError(f"{shown(text)} is more than {MOST}")
    return value
