"""Clusters as Linux shows them, from folders that look like /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvm_npu.pipelines.detect import (
    MOST_PARTS,
    detect_platform,
    quota_cores,
    usable_cores,
)
from tvm_npu.pipelines.errors import PlatformError


def write(root: Path, name: str, text: object) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def core(
    root: Path, number: int, cluster: int, capacity: int | None = None, khz: int | None = None
) -> None:
    folder = f"devices/system/cpu/cpu{number}"
    write(root, f"{folder}/topology/physical_package_id", 0)
    write(root, f"{folder}/topology/cluster_id", cluster)
    write(root, f"{folder}/topology/thread_siblings_list", number)
    if capacity is not None:
        write(root, f"{folder}/cpu_capacity", capacity)
    if khz is not None:
        write(root, f"{folder}/cpufreq/cpuinfo_max_freq", khz)


def test_big_and_little_clusters(tmp_path: Path) -> None:
    for number in range(4):
        core(tmp_path, number, 0, 446, 1_800_000)
    for number in (4, 5):
        core(tmp_path, number, 1, 1024, 2_400_000)
    write(tmp_path, "devices/system/cpu/cpuidle/current_driver", "none")
    platform = detect_platform(tmp_path, range(6))
    assert [place.core_ids for place in platform.places] == [(4, 5), (0, 1, 2, 3)]
    assert [place.capacity for place in platform.places] == [1024.0, 446.0]
    assert [place.name for place in platform.places] == ["cluster0", "cluster1"]


def test_affinity_and_offline_cores_are_kept_out(tmp_path: Path) -> None:
    for number in range(4):
        core(tmp_path, number, number // 2, 1024)
    write(tmp_path, "devices/system/cpu/cpu3/online", 0)
    platform = detect_platform(tmp_path, {1, 2, 3})
    assert [place.core_ids for place in platform.places] == [(1,), (2,)]
    with pytest.raises(PlatformError, match=r"shows 0, 1, 2, 3; allowed are 9"):
        usable_cores(tmp_path, {9})
    with pytest.raises(PlatformError, match="shows none"):
        usable_cores(tmp_path / "nothing", {0})


def test_clocks_stand_in_for_capacities(tmp_path: Path) -> None:
    core(tmp_path, 0, 0, khz=1_000_000)
    core(tmp_path, 1, 1, khz=2_000_000)
    assert [one.capacity for one in usable_cores(tmp_path, {0, 1})] == [512.0, 1024.0]


def test_cores_without_any_figure_are_equal(tmp_path: Path) -> None:
    for number in range(3):
        core(tmp_path, number, 65535)
    platform = detect_platform(tmp_path, range(3))
    assert [place.name for place in platform.places] == ["core0", "core1", "core2"]
    whole = detect_platform(tmp_path, range(3), by="cluster")
    assert [place.core_ids for place in whole.places] == [(0, 1, 2)]


def test_hardware_threads_stay_together(tmp_path: Path) -> None:
    for number in range(4):
        core(tmp_path, number, 0)
        siblings = f"{number % 2},{number % 2 + 2}"
        write(tmp_path, f"devices/system/cpu/cpu{number}/topology/thread_siblings_list", siblings)
    platform = detect_platform(tmp_path, range(4))
    assert [place.core_ids for place in platform.places] == [(0, 2), (1, 3)]
    assert [place.thread_count for place in platform.places] == [1, 1]


def test_many_equal_cores_are_divided_into_few_places(tmp_path: Path) -> None:
    for number in range(30):
        core(tmp_path, number, 0)
    platform = detect_platform(tmp_path, range(30))
    assert len(platform) == MOST_PARTS
    assert sorted(c for place in platform.places for c in place.core_ids) == list(range(30))
    sizes = {len(place.core_ids) for place in platform.places}
    assert max(sizes) - min(sizes) <= 1


def test_the_cgroup_s_quota_is_told(tmp_path: Path) -> None:
    for number in range(4):
        core(tmp_path, number, 0)
    assert quota_cores(tmp_path) is None
    write(tmp_path, "fs/cgroup/cpu.max", "150000 100000")
    assert quota_cores(tmp_path) == 1.5
    assert "time of 1.5 cores only" in detect_platform(tmp_path, range(4)).description
    write(tmp_path, "fs/cgroup/cpu.max", "max 100000")
    write(tmp_path, "fs/cgroup/cpu/cpu.cfs_quota_us", -1)
    write(tmp_path, "fs/cgroup/cpu/cpu.cfs_period_us", 100000)
    assert quota_cores(tmp_path) is None


def test_this_machine() -> None:
    platform = detect_platform()
    platform.require_cores({core.core_id for core in usable_cores()})
