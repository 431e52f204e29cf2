"""How numbers stand on the page: whole, with thousands separators, a dash for what is unknown."""

from __future__ import annotations

import html
import re

UNKNOWN = "–"


def count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def decimal(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.1f}"


def percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def data(size_bytes: float | None) -> str:
    """What lies in files and moves: 1,536 bytes -> ``1.5 KB``."""
    return _in_units(size_bytes, 1000, ("bytes", "KB", "MB"))


def memory(size_bytes: float | None) -> str:
    """Memories, whose sizes are powers of two: 1,536 bytes -> ``1.5 KiB``."""
    return _in_units(size_bytes, 1024, ("bytes", "KiB", "MiB"))


def _in_units(size: float | None, step: int, units: tuple[str, ...]) -> str:
    if size is None:
        return UNKNOWN
    power = 0
    while size >= step and power < len(units) - 1:
        size, power = size / step, power + 1
    return f"{size:,.{1 if power else 0}f} {units[power]}"


def figure(value: float | None) -> str:
    """Of any size, to six places."""
    return UNKNOWN if value is None else f"{value:,.6g}"


def factor(value: float | None) -> str:
    """``1.250``."""
    if value is None:
        return UNKNOWN
    return f"{value:.3f}" if value < 1e5 else f"{value:.2e}"


def breaks(name: str) -> str:
    """HTML of a name that may go on in the next line behind what joins its parts."""
    return re.sub(r"([+/_.])", r"\1<wbr>", html.escape(name))


FILTERS = {
    "figure": figure, "count": count, "decimal": decimal, "percent": percent, "data": data,
    "memory": memory, "breaks": breaks, "factor": factor,
}  # fmt: skip
