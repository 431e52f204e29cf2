"""Platform files: what they say, what is refused, and that they survive being written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tvm_npu.pipelines import Configuration, load_platform, platform_names
from tvm_npu.pipelines.errors import ConfigurationError, PlatformError
from tvm_npu.pipelines.platform import (
    MAXIMUM_PLACES,
    SimulatedPlace,
    ThrottledPlace,
    platform_from_dict,
)
from tvm_npu.pipelines.platform_file import platform_from_toml, platform_to_toml

REAL = """
name = "two"
[link]
latency_s = 1e-5
[[places]]
kind = "real"
name = "big"
core_ids = [0, 1]
mcpu = "cortex-a57"
[[places]]
kind = "throttled"
name = "slow"
core_ids = [2]
duty = 0.25
"""


@pytest.mark.parametrize("name", platform_names())
def test_built_in_platforms_survive_being_written(name: str) -> None:
    platform = load_platform(name)
    assert platform.name == name and platform.simulated
    assert platform_from_toml(platform_to_toml(platform), "again") == platform


def test_the_papers_platforms_are_there() -> None:
    assert {f"shisha-c{n}" for n in range(1, 6)} < set(platform_names())
    assert {f"tx2-{c}core-setting{s}" for c in (4, 6) for s in range(1, 5)} < set(platform_names())
    kinds = [(p.cores, p.bytes_per_s) for p in _simulated("shisha-table1")]
    assert sorted(kinds) == [(4, 20e9), (4, 40e9), (8, 20e9), (8, 40e9)]
    assert [len(load_platform(f"shisha-c{n}")) for n in range(1, 6)] == [2, 4, 6, 6, 8]


def _simulated(name: str) -> list[SimulatedPlace]:
    return [p for p in load_platform(name).places if isinstance(p, SimulatedPlace)]


def test_a_file_of_real_and_throttled_places(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(REAL)
    platform = load_platform(path)
    big, slow = platform.places
    assert isinstance(slow, ThrottledPlace) and big.kind == "real"
    assert big.thread_count == 2 and big.speed == 2.0 and slow.speed == 0.25
    assert platform.link_between(1, 0).latency_s == 1e-5
    assert platform.speed_order == (0, 1) and platform.most_stages == 2
    assert platform_from_toml(platform_to_toml(platform), "again") == platform


WRITTEN = """\
name = "two"
description = "a \\"board\\" at C:\\\\"
arrangements = [["big"], ["big", "slow"]]

[link]
latency_s = 1e-05

[[places]]
name = "big"
core_ids = [0, 1]
mcpu = "cortex-a57"
kind = "real"

[[places]]
name = "slow"
core_ids = [2]
kind = "throttled"
duty = 0.25

[[links]]
bytes_per_s = 1000000000.0
between = ["big", "slow"]
"""


def test_what_is_written_stays_as_it_is_to_the_byte() -> None:
    assert platform_to_toml(platform_from_toml(WRITTEN, "two.toml")) == WRITTEN


def test_cores_that_do_not_exist() -> None:
    platform = platform_from_toml(REAL, "two.toml")
    platform.require_cores({0, 1, 2, 3})
    message = "place slow names core 2; this process may use 0, 1"
    with pytest.raises(PlatformError, match=message):
        platform.require_cores({0, 1})
    load_platform("shisha-c1").require_cores(())  # simulated places need none


def test_places_that_share_cores() -> None:
    platform = load_platform("tx2-4core-setting1")
    names = [place.name for place in platform.places]
    pair, one, a57 = names.index("denver"), names.index("denver-1"), names.index("a57")
    assert platform.most_stages == 4
    platform.check(Configuration((5, 2), (one, a57)), 7)
    with pytest.raises(ConfigurationError, match="denver and denver-1 share core 1"):
        platform.check(Configuration((5, 2), (pair, one)), 7)
    assert platform.arrangement(2) == (pair, a57) and platform.arrangement(1) is None
    assert load_platform("shisha-c2").arrangement(3) == (0, 1, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"places": []}, "places: Tuple should have at least 1 item"),
        ({"places": [{"kind": "real", "name": "a", "core_ids": [0, 0]}]}, "core_ids: 0 twice"),
        (
            {"places": [{"kind": "real", "name": "a", "core_ids": [0], "threads": 2}]},
            "threads = 2 is more than the 1 cores of place a",
        ),
        ({"places": [{"kind": "gpu", "name": "a"}]}, "places.0: Input tag 'gpu'"),
        (
            {"places": [{"kind": "throttled", "name": "a", "core_ids": [0], "duty": 1.5}]},
            r"places.0.duty: .*less than or equal to 1 \(value: 1.5\)",
        ),
        (
            {"places": [{"kind": "real", "name": "a", "core_ids": [0], "dutty": 1}]},
            "places.0.dutty: Extra inputs are not permitted",
        ),
        ({"arrangements": [["a", "c"]]}, "no place is called c; there are a, b"),
        ({"arrangements": [["a", "b"], ["b", "a"]]}, "arrangements: length: 2 twice"),
        ({"arrangements": [["a", "a"]]}, "a, a: stages 0 and 1 are both on place 0"),
        ({"links": [{"between": ["a", "a"]}]}, "between: place a twice"),
        (
            {"links": [{"between": ["a", "b"]}, {"between": ["b", "a"]}]},
            "links: between: a and b twice",
        ),
        ({"link": {"latency_s": -1}}, "link.latency_s: .*greater than or equal to 0"),
        ({"link": {"bytes_per_s": 0}}, "link.bytes_per_s: .*greater than 0"),
        (
            {"places": [{"kind": "real", "name": f"p{i}", "core_ids": [i]} for i in range(257)]},
            f"at most {MAXIMUM_PLACES} items",
        ),
        (
            {
                "places": [
                    {"kind": "real", "name": "a", "core_ids": [0]},
                    {
                        "kind": "simulated", "name": "b", "cores": 1, "macs_per_s": 1,
                        "bytes_per_s": 1,
                    },
                ]
            },
            "simulated and real places in one platform",
        ),
        ({"name": ""}, "name: String should have at least 1 character"),
    ],
)  # fmt: skip
def test_absurd_platforms(change: dict[str, Any], message: str) -> None:
    places = [{"kind": "real", "name": n, "core_ids": [i]} for i, n in enumerate("ab")]
    with pytest.raises(PlatformError, match=message) as caught:
        platform_from_dict({"name": "x", "places": places, **change}, "x.toml")
    assert str(caught.value).startswith("platform file x.toml: ")


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match="unknown platform 'tx3': neither a file nor one of"):
        load_platform("tx3")
    with pytest.raises(PlatformError, match="there is none; .tvm-npu platform detect --out"):
        load_platform(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text('name = "x"\nplaces = [')
    with pytest.raises(PlatformError, match="broken.toml: not TOML: Invalid value"):
        load_platform(broken)
    broken.write_bytes(b"\x90")
    told = r"^cannot read platform file '.*broken.toml': not text \(byte 0: invalid start byte\)$"
    with pytest.raises(PlatformError, match=told):
        load_platform(broken)


def test_a_mistake_is_told_once() -> None:
    with pytest.raises(PlatformError) as caught:
        platform_from_dict({"name": "x", "places": [{"kind": "real", "name": "a"}]})
    assert str(caught.value) == "platform file platform: places.0.core_ids: Field required"
