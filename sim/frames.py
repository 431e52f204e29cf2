"""What shows itself in notebooks: as an HTML table, as a frame of pandas (if it is installed)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

from tvm_npu.sim.errors import BoundedError

if TYPE_CHECKING:
    import pandas


class FrameError(BoundedError):
    """pandas is missing."""


class Tabular(ABC):
    """Results that are a table. Notebooks show the columns ``shown_columns`` (none: all)."""

    shown_columns: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def flat_rows(self) -> list[dict[str, Any]]:
        """A dictionary for each row, units in the names of keys; None for what is not known."""

    def to_dataframe(self) -> pandas.DataFrame:
        """`flat_rows` as a pandas.DataFrame. FrameError without pandas."""
        try:
            import pandas
        except ImportError as error:
            raise FrameError("this needs pandas: pip install 'tvm-npu[frames]'") from error
        return pandas.DataFrame(self.flat_rows())

    def _repr_html_(self) -> str:
        rows = self.flat_rows()
        keys = self.shown_columns or tuple(dict.fromkeys(key for row in rows for key in row))
        return html_table([{key: row.get(key) for key in keys} for row in rows])


def html_table(found: Sequence[Mapping[str, Any]]) -> str:
    """Headings and cells as text, numbers with thousands separators."""
    if not found:
        return "<p>nothing</p>"

    def cell(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
        if isinstance(value, int) and not isinstance(value, bool):
            return f"{value:,}"
        return "–" if value is None else escape(str(value))

    head = "".join(f"<th>{escape(key)}</th>" for key in found[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{cell(value)}</td>" for value in row.values()) + "</tr>"
        for row in found
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
