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
    """1,536 bytes -> ``1.5 KB``."""
    if size_bytes is None:
        return UNKNOWN
    for unit in ("bytes", "KB", "MB"):
        if size_bytes < 1024 or unit == "MB":
            break
        size_bytes /= 1024
    return f"{size_bytes:,.0f} {unit}" if unit == "bytes" else f"{size_bytes:,.1f} {unit}"


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
    "breaks": breaks, "factor": factor,
}  # fmt: skip
