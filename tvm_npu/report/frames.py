"""Rows of a report in notebooks: as an HTML table, as a frame of pandas (if it is installed)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tvm_npu.errors import NpuError


class ReportError(NpuError):
    """A package that a form of the report needs is missing."""


def html_table(found: Sequence[Mapping[str, Any]]) -> str:
    """For notebooks: headings and cells as text, numbers with thousands separators."""
    if not found:
        return "<p>nothing</p>"

    def cell(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
        if isinstance(value, int):
            return f"{value:,}"
        return "–" if value is None else escape(str(value))

    head = "".join(f"<th>{escape(key)}</th>" for key in found[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{cell(value)}</td>" for value in row.values()) + "</tr>"
        for row in found
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def dataframe(found: Sequence[Mapping[str, Any]]) -> Any:
    """A pandas.DataFrame of rows. ReportError without pandas."""
    try:
        import pandas
    except ImportError as error:
        raise ReportError("this needs pandas: pip install 'tvm-npu[frames]'") from error
    return pandas.DataFrame(list(found))
