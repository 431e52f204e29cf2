"""A comparison of runners as one HTML page that opens without a network."""

from __future__ import annotations

from tvm_npu.comparison import Comparison
from tvm_npu.comparison.row import Row
from tvm_npu.report.page import page_source, page_template

Group = tuple[str, str, list[Row]]
_SIMULATED = (
    "Latency, simulated",
    "Cycles of the simulated machine at its clock. They do not depend on this computer.",
)
_MEASURED = (
    "Latency, measured",
    "The median on this computer. Beside simulated times these say which order of magnitude an NPU "
    "is in, not that it is so many times faster.",
)


def make_comparison_page(found: Comparison) -> str:
    """The page of ``found``. Raises PageError without Jinja2."""
    ran = [row for row in found.rows if row.error is None]
    return page_template("compared.html.jinja").render(
        found=found,
        groups=_by_kind_of_time(ran),
        ran=ran,
        failed=[row for row in found.rows if row.error is not None],
        style=page_source("page.css"),
    )


def _by_kind_of_time(rows: list[Row]) -> list[Group]:
    """Simulated and measured times never stand in one table; groups without rows are left out."""
    timed = [row for row in rows if row.latency_us is not None]
    groups = [
        (*_SIMULATED, [row for row in timed if row.simulated]),
        (*_MEASURED, [row for row in timed if not row.simulated]),
    ]
    return [group for group in groups if group[2]]
