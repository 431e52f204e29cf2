"""What the Trace Event Format (JSON object form, Chromium project) asks of a trace's entries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

MOST_FAULTS = 10


def faults(content: bytes) -> list[str]:
    """What is wrong with a trace, `MOST_FAULTS` at most: entries of unknown phases, time stamps and
    process numbers that are none, slices of lanes without a name, counters without numbers,
    asynchronous slices that do not end."""
    values = json.loads(content)
    entries = values.get("traceEvents") if isinstance(values, dict) else None
    if not isinstance(entries, list) or not entries:
        return ["there is no list of 'traceEvents'"]
    found: list[str] = []
    lanes: set[tuple[Any, Any]] = set()
    processes: set[Any] = set()
    open_slices: set[tuple[Any, ...]] = set()
    for number, entry in enumerate(entries):
        found += [f"entry {number}: {fault}" for fault in _faults(entry)]
        if len(found) >= MOST_FAULTS:
            return found[:MOST_FAULTS]
        if entry.get("name") == "process_name":
            processes.add(entry["pid"])
        elif entry.get("name") == "thread_name":
            lanes.add((entry["pid"], entry["tid"]))
        elif entry.get("ph") == "X" and (entry["pid"], entry["tid"]) not in lanes:
            found.append(f"entry {number}: a slice of a lane without a name")
        elif entry.get("ph") in ("b", "e"):
            open_slices ^= {(entry["cat"], entry["id"], entry["name"])}
        if entry.get("ph") != "M" and entry.get("pid") not in processes:
            found.append(f"entry {number}: process {entry.get('pid')!r} has no name")
    found += [f"{name!r} does not begin and end" for *_, name in open_slices]
    return found[:MOST_FAULTS]


def _faults(entry: dict[str, Any]) -> Iterator[str]:
    phase = entry.get("ph")
    if phase not in ("X", "b", "e", "C", "M", "i"):
        yield f"its phase is {phase!r}"
    if not isinstance(entry.get("name"), str) or not entry["name"]:
        yield "it has no name"
    if not isinstance(entry.get("pid"), int):
        yield "its process is no number"
    if phase != "C" and not isinstance(entry.get("tid"), int):
        yield "its thread is no number"
    if phase != "M" and not _is_time(entry.get("ts")):
        yield f"its time stamp is {entry.get('ts')!r}"
    if phase == "X" and not _is_time(entry.get("dur")):
        yield f"its duration is {entry.get('dur')!r}"
    if phase == "C" and not all(map(_is_time, entry.get("args", {None: None}).values())):
        yield "it counts no numbers"


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15
