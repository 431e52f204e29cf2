"""The platform of this machine: clusters of cores as Linux describes them in /sys."""

from __future__ import annotations

import math
import os
import platform as host
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tvm_npu.pipelines.errors import PlatformError
from tvm_npu.pipelines.platform import MAXIMUM_PLACES, Platform, RealPlace

CPUS = Path("devices/system/cpu")
FASTEST = 1024.0
MOST_PARTS = 8
"""Places into which a single cluster is divided."""
By = Literal["auto", "cluster", "core"]


@dataclass(frozen=True)
class Core:
    """One logical core. ``capacity``: 1024 for the machine's fastest; ``cluster``: equal for cores
    that share package, cluster or last cache, capacity and clock; ``siblings``: the usable hardware
    threads of its physical core, itself included."""

    core_id: int
    capacity: float
    cluster: tuple[object, ...]
    siblings: frozenset[int]


def usable_cores(root: Path = Path("/sys"), allowed: Collection[int] | None = None) -> list[Core]:
    """Online cores on which this process may run (its affinity, which holds the cgroup's cpuset),
    or those of ``allowed``. Raises PlatformError when /sys shows none of them."""
    if allowed is None:
        allowed = os.sched_getaffinity(0)
    folder = root / CPUS
    found = sorted(
        int(entry.name[3:]) for entry in folder.glob("cpu*") if re.fullmatch(r"cpu\d+", entry.name)
    )
    ids = [one for one in found if one in allowed and _text(folder / f"cpu{one}/online") != "0"]
    if not ids:
        raise PlatformError(
            f"{folder} shows no core that this process may use "
            f"(it shows {_listed(found)}; allowed are {_listed(sorted(allowed))})"
        )
    clocks = {one: _number(folder / f"cpu{one}/cpufreq/cpuinfo_max_freq") for one in ids}
    told = {one: _number(folder / f"cpu{one}/cpu_capacity") for one in ids}
    raw = {one: _first(told[one], clocks[one], 1.0) for one in ids}
    if any(value is None for value in told.values()) and any(told.values()):
        raw = {one: _first(clocks[one], 1.0) for one in ids}  # never mix two scales
    fastest = max(raw.values())
    cores = []
    for one in ids:
        cpu = folder / f"cpu{one}"
        threads = frozenset(_ids(_text(cpu / "topology/thread_siblings_list")))
        group = (*_group(cpu), raw[one], clocks[one])
        capacity = round(FASTEST * raw[one] / fastest, 1)
        cores.append(Core(one, capacity, group, (threads & set(ids)) | {one}))
    return cores


def quota_cores(root: Path = Path("/sys")) -> float | None:
    """How many cores' time the cgroup grants (``cpu.max``, or ``cpu.cfs_quota_us`` of version 1);
    None without a limit."""
    group = root / "fs/cgroup"
    limits = []
    words = _text(group / "cpu.max").split()
    if len(words) == 2 and words[0] != "max":
        limits.append(float(words[0]) / float(words[1]))
    quota = _number(group / "cpu/cpu.cfs_quota_us")
    period = _number(group / "cpu/cpu.cfs_period_us")
    if quota is not None and period and quota > 0:
        limits.append(quota / period)
    return min(limits, default=None)


def detect_platform(
    root: Path = Path("/sys"), allowed: Collection[int] | None = None, by: By = "auto"
) -> Platform:
    """Real places of this machine: one a cluster, one a core, or (``auto``) one a cluster unless
    there is a single one, which is then divided into its cores, or MOST_PARTS groups of them.
    Hardware threads of one core stay in one place and count as one thread.

    Raises PlatformError when no core can be used.
    """
    cores = usable_cores(root, allowed)
    clusters = _grouped(cores, lambda core: core.cluster)
    single = by == "core" or (by == "auto" and len(clusters) == 1)
    if single:
        clusters = _grouped(cores, lambda core: min(core.siblings))
        if by == "auto":
            clusters = _parts(clusters)
    clusters.sort(key=lambda own: (-own[0].capacity, own[0].core_id))
    left_out = clusters[MAXIMUM_PLACES:]
    places = tuple(
        _place(f"core{own[0].core_id}" if single else f"cluster{index}", own)
        for index, own in enumerate(clusters[:MAXIMUM_PLACES])
    )
    notes = [f"{len(cores)} cores of {host.machine() or 'this machine'} as found in {root / CPUS}"]
    quota = quota_cores(root)
    if quota is not None and quota < len(cores):
        notes.append(f"the cgroup grants the time of {quota:g} cores only")
    if left_out:
        notes.append(f"{sum(map(len, left_out))} cores beyond {MAXIMUM_PLACES} places left out")
    return Platform(name="detected", description="; ".join(notes), places=places)


def _grouped(cores: Iterable[Core], key: Callable[[Core], object]) -> list[list[Core]]:
    groups: dict[object, list[Core]] = {}
    for core in cores:
        groups.setdefault(key(core), []).append(core)
    return list(groups.values())


def _parts(physical: list[list[Core]]) -> list[list[Core]]:
    """At most MOST_PARTS neighbouring groups of physical cores, as even as can be."""
    count = min(MOST_PARTS, len(physical))
    edges = [len(physical) * part // count for part in range(count + 1)]
    return [
        [core for own in physical[first:end] for core in own]
        for first, end in zip(edges, edges[1:], strict=False)
    ]


def _place(name: str, cores: list[Core]) -> RealPlace:
    ids = tuple(core.core_id for core in cores)
    physical = len({min(core.siblings) for core in cores})
    threads = physical if physical < len(ids) else 0
    return RealPlace(
        kind="real", name=name, core_ids=ids, threads=threads, capacity=cores[0].capacity
    )


def _group(cpu: Path) -> tuple[object, ...]:
    """What cores of one cluster have in common: package, die, and cluster or last cache."""
    package = _text(cpu / "topology/physical_package_id")
    die = _text(cpu / "topology/die_id")
    cluster = _text(cpu / "topology/cluster_id")
    if cluster not in ("", "-1", "65535"):  # what Linux says when there is none
        return package, die, cluster
    caches = sorted((cpu / "cache").glob("index*"), key=lambda one: _number(one / "level") or 0)
    shared = _text(caches[-1] / "shared_cpu_list") if caches else ""
    return package, die, shared


def _first(*values: float | None) -> float:
    return next((value for value in values if value), math.nan)


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _number(path: Path) -> float | None:
    text = _text(path)
    return float(text) if re.fullmatch(r"-?\d+", text) else None


def _ids(text: str) -> Iterable[int]:
    """``0-2,5`` as Linux writes lists of cores."""
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match:
            yield from range(int(match[1]), int(match[2] or match[1]) + 1)


def _listed(ids: Collection[int]) -> str:
    return ", ".join(map(str, ids)) or "none"
