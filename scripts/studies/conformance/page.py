"""The page that a run writes: counts, and every case that is not right, with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from studies.conformance.rows import NOT_ASKED, RIGHT, SQNR_DB, Row

_HEAD = """\
# Conformance

Written by `scripts/conformance --page docs/conformance.md`. A case is right when its outputs are
those of its data set (relative error 0.001), or, where int16 regions computed them, within
{sqnr:.0f} dB; outputs of int8 regions are held to the bits of the fixed-point reference alone, as
all regions are. Backend cases are those of the onnx package, on nmp-4x8, int16; random graphs are
compared with onnxruntime, on machines, planners and precisions drawn with them, and with stock TVM
where the NPU is not right. Stock TVM is its own ONNX frontend, build and graph executor. Weights
and small inputs of whole numbers (axes, shapes) are given as constants to both.
"""


def page(rows: Sequence[Row], available: Mapping[str, int]) -> str:
    """Markdown; ``available`` says how many cases there are, of groups that have an end."""
    lines = [_HEAD.format(sqnr=SQNR_DB["int16"])]
    headings = (
        "cases", "there are", "run", "right on the NPU", "with regions", "right in stock TVM",
        "faults", "bits off",
    )  # fmt: skip
    lines += [f"| {' | '.join(headings)} |", "| --- " * len(headings) + "|"]
    for group in dict.fromkeys(row.group for row in rows):
        members = [row for row in rows if row.group == group]
        lines.append(_counts(group, available.get(group), members))
    faults = [row for row in rows if row.fault]
    lines += ["", "## Faults", "", "Stock TVM is right and the NPU is not, or a bit is off.", ""]
    lines += _table(faults) if faults else ["None."]
    others = [row for row in rows if row.npu != RIGHT and not row.fault]
    lines += ["", "## Other cases that are not right", "", "Stock TVM is not right either.", ""]
    reasons = Counter((row.npu, _short(row.reason), row.stock) for row in others)
    lines += ["| cases | NPU | reason | stock TVM |", "| --- | --- | --- | --- |"]
    for (npu, reason, stock), count in sorted(reasons.items(), key=lambda item: -item[1]):
        lines.append(f"| {count} | {npu} | {reason} | {stock} |")
    lines += ["", "## By name", ""]
    lines += _table(others)
    return "\n".join(lines) + "\n"


def _counts(group: str, available: int | None, rows: Sequence[Row]) -> str:
    numbers = (
        len(rows), sum(row.npu == RIGHT for row in rows), sum(row.regions > 0 for row in rows),
        sum(row.stock == RIGHT for row in rows), sum(row.fault for row in rows),
        sum(row.bits_off for row in rows),
    )  # fmt: skip
    shown = [f"{number:,}" for number in numbers]
    asked = sum(row.stock != NOT_ASKED for row in rows)
    if asked < len(rows):
        shown[3] += f" of {asked:,} asked"
    count = "any number" if available is None else f"{available:,}"
    return f"| {group} | {count} | {' | '.join(shown)} |"


def _table(rows: Sequence[Row]) -> list[str]:
    lines = ["| case | NPU | reason | stock TVM |", "| --- | --- | --- | --- |"]
    for row in rows:
        where = f" ({row.settings})" if row.group == "random" else ""
        lines.append(f"| `{row.name}`{where} | {row.npu} | {_short(row.reason)} | {row.stock} |")
    return lines


def _short(reason: str) -> str:
    """Without what a table or Markdown would read."""
    clean = reason.replace("|", "/").replace("<", "(").replace(">", ")").replace("`", "'")
    return clean if len(clean) <= 110 else clean[:107].rpartition(" ")[0] + " ..."
