"""What a layer does and what binds it, in sentences made of its measured figures."""

from __future__ import annotations

from typing import Any

from tvm_npu.report.page.numbers import count, data, percent
from tvm_npu.report.profile import LayerRow, Profile

ADVICE = {
    "mac": "Fewer or narrower multiply-accumulates (int8) would shorten it; more bandwidth would "
    "not.",
    "dma": "Fewer bytes (larger tiles, int8, fusing with a neighbour) or more bandwidth would "
    "shorten it; more multiply-accumulate units would not.",
    "control": "Fewer, larger instructions or tiles would shorten it.",
    "waits": "Double buffers or another order of transfers and work, so that units do not wait for "
    "each other, would shorten it.",
}


def layer_words(row: LayerRow, profile: Profile) -> dict[str, Any]:
    """``sentences`` and ``plan``, the plan's own fields as (name, value)."""
    return {"sentences": list(_sentences(row, profile)), "plan": _fields(row.plan or {})}


def _sentences(row: LayerRow, profile: Profile) -> list[str]:
    does = f"{row.kind} in {row.precision}"
    if row.macs:
        does += f", {count(row.macs)} multiply-accumulates"
    found = [f"The layer computes {does}; it stands for {', '.join(row.source) or row.name}."]
    for link in profile.links:
        streams = row.bytes_by_link.get(link.name, {})
        if streams:
            parts = ", ".join(f"{data(size)} of {name}" for name, size in streams.items())
            found.append(f"{data(sum(streams.values()))} {link.meaning}: {parts}.")
    if row.macs and row.dram_bytes:
        found.append(f"That is {row.macs / row.dram_bytes:.1f} multiply-accumulates a byte.")
    if row.breakdown is not None and row.cycles:
        binds = row.breakdown
        found.append(
            f"It takes {count(row.cycles)} cycles. The busiest computing unit works "
            f"{percent(binds.mac_cycles / row.cycles)} of them, the busiest engine that moves data "
            f"{percent(binds.dma_cycles / row.cycles)}; "
            f"{percent(binds.wait_cycles / row.cycles)} pass while no unit works."
        )
        found.append(
            f"Its {binds.roof} roof allows {count(binds.roofline_cycles)} cycles, "
            f"{percent(binds.roofline_share)} of that. {ADVICE[binds.bound]}"
        )
    if row.predicted_cycles and row.cycles:
        off = row.cycles / row.predicted_cycles - 1
        found.append(f"The planner expected {count(row.predicted_cycles)} cycles ({off:+.1%}).")
    return found


def _fields(plan: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in plan.items():
        called = f"{prefix}{name.replace('_', ' ')}"
        if isinstance(value, dict):
            found += _fields(value, f"{called}: ")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for number, one in enumerate(value):
                found += _fields(one, f"{called} {number}: ")
        elif isinstance(value, float):
            found.append((called, f"{value:,.1f}"))
        elif value is not None and value != []:
            found.append((called, f"{value}"))
    return found
