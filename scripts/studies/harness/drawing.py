"""Drawings: file formats, deterministic files. Needs matplotlib."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from studies.harness.errors import StudyError

FORMATS = ("png", "svg", "pdf")
_WITHOUT_DATE: dict[str, dict[str, Any]] = {
    "png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None},
}  # fmt: skip


def check_plottable(path: Path) -> None:
    """Raises StudyError when there is no matplotlib or no such format: better before the work
    than after it."""
    if format_of(path) not in FORMATS:
        raise StudyError(
            f"cannot plot to {str(path)!r}: its suffix must be one of "
            f"{', '.join('.' + one for one in FORMATS)}"
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise StudyError("plots need matplotlib: pip install '.[plot]'") from error


def format_of(path: Path) -> str:
    return path.suffix[1:].lower()


def render(draw: Callable[[Any], None], size: tuple[float, float], file_format: str) -> bytes:
    """What ``draw`` draws on a figure of ``size`` inches, as a file of one of FORMATS; equal
    drawings give equal bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "tvm-npu", "font.size": 8}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        data = io.BytesIO()
        figure.savefig(data, format=file_format, metadata=_WITHOUT_DATE[file_format], dpi=120)
    return data.getvalue()
