"""What all drawings share: file formats, deterministic files, the parts of simulated time."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from studies.tso.errors import ReproductionError
from studies.tso.measure import Breakdown

FORMATS = ("png", "svg", "pdf")
_WITHOUT_DATE: dict[str, dict[str, Any]] = {
    "png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None},
}  # fmt: skip
PARTS: tuple[tuple[str, str, Callable[[Breakdown], float]], ...] = (
    ("load", "tab:blue", lambda one: one.load_cycles),
    ("store", "tab:orange", lambda one: one.store_cycles),
    ("MAC", "tab:green", lambda one: one.mac_cycles),
    ("other", "0.75", lambda one: one.other_cycles),
)


def check_plottable(path: Path) -> None:
    """Raises ReproductionError when there is no matplotlib or no such format: better before the
    work than after it."""
    if path.suffix[1:].lower() not in FORMATS:
        raise ReproductionError(
            f"cannot plot to {str(path)!r}: its suffix must be one of "
            f"{', '.join('.' + one for one in FORMATS)}"
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ReproductionError("plots need matplotlib: pip install '.[plot]'") from error


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


def stack(axes: Any, labels: list[str], parts: list[Breakdown], whole: float) -> None:
    """One stacked bar a breakdown, in percent of ``whole`` cycles."""
    bottoms = [0.0] * len(parts)
    for label, color, part in PARTS:
        heights = [100 * part(one) / whole for one in parts]
        axes.bar(labels, heights, bottom=bottoms, color=color, label=label)
        bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
