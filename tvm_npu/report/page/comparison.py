"""Several profiles of a model side by side: other machines, planners, precisions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tvm_npu.report.page import PageError
from tvm_npu.report.profile import SCHEMA
from tvm_npu.sim.bounded_files import read_text_bounded
from tvm_npu.sim.texts import cause, check_values

MOST_PROFILE_VALUES = 1 << 20

TOTALS = (
    ("time, us", "time_us"), ("frames a second", "frames_per_s"), ("cycles", "cycles"),
    ("MAC use", "mac_utilization"), ("DRAM peak, bytes", "dram_peak_bytes"),
    ("energy, uJ", "energy_uj"),
)  # fmt: skip


def read_profile(path: Path) -> dict[str, Any]:
    """What ``profile --json`` wrote. Raises PageError."""
    try:
        text = read_text_bounded(path)
        check_values(text, MOST_PROFILE_VALUES, help_="; a model of some hundred layers has 10000")
        values = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise PageError(
            f"cannot read profile {str(path)!r}: {cause(error)}; a profile is what 'tvm-npu "
            "profile --json FILE' writes"
        ) from error
    if not isinstance(values, dict) or values.get("schema") != SCHEMA:
        raise PageError(f"{str(path)!r} is no profile: its schema is not {SCHEMA!r}")
    if bad := _damage(values):
        raise PageError(
            f"profile {str(path)!r} is damaged: {bad}; write it anew with tvm-npu profile --json"
        )
    return values


def comparison(
    mine: Mapping[str, Any], others: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """``runs`` (titles), ``models`` (their files' names, none if all are of one), ``totals`` and
    ``layers`` as rows of (name, a value a run); layers are matched by name, those of one name in
    their order, and None where a run has none of it. None when there is nothing to compare."""
    if not others:
        return None
    runs = [mine, *others]
    times = [_times(run["layers"]) for run in runs]
    layers = dict.fromkeys(key for found in times for key in found)
    models = [Path(run["model"]).name for run in runs]
    return {
        "runs": [f"{run['machine']}, {run['precision']}, {run['planner']}" for run in runs],
        "models": models if len(set(models)) > 1 else [],
        "totals": [(name, [run["totals"].get(key) for run in runs]) for name, key in TOTALS],
        "layers": [(key[0], [found.get(key) for found in times]) for key in layers],
    }


def _damage(values: Mapping[str, Any]) -> str | None:
    """The first thing of a profile that `comparison` reads and that is none of its kind."""
    for key in ("machine", "precision", "planner", "model"):
        if not isinstance(values.get(key), str):
            return f"{key!r} is no text"
    totals, layers = values.get("totals"), values.get("layers")
    if not isinstance(totals, dict) or not isinstance(layers, list):
        return "it needs 'totals' and a list of 'layers'"
    for _, key in TOTALS:
        if not _is_number(totals.get(key)):
            return f"'totals' has no number as {key!r}"
    for number, layer in enumerate(layers):
        if not isinstance(layer, dict) or not isinstance(layer.get("name"), str):
            return f"layer {number} has no name"
        if not _is_number(layer.get("time_us", "")):
            return f"layer {number} has no number as 'time_us'"
    return None


def _is_number(value: Any) -> bool:
    """None stands for one that is not known."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _times(layers: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], Any]:
    """By name, and by how many layers of that name are before."""
    seen: Counter[str] = Counter()
    found = {}
    for layer in layers:
        found[layer["name"], seen[layer["name"]]] = layer["time_us"]
        seen[layer["name"]] += 1
    return found
