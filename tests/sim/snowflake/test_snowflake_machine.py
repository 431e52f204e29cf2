from __future__ import annotations

import pytest

from tvm_npu.sim.errors import MachineError
from tvm_npu.sim.machine_file import load_machine, machine_from_dict, machine_names, of_description
from tvm_npu.sim.snowflake.machine import SnowflakeMachine


@pytest.mark.parametrize(
    ("name", "clusters", "macs", "bytes_per_cycle"),
    [
        ("snowflake-1cu", 1, 64, 29.4),
        ("snowflake-1cc", 1, 256, 37.43),
        ("snowflake-2cc", 2, 512, 37.43),
        ("snowflake-4cc", 4, 1024, 37.43),
        ("snowflake-1cc-9gbs", 1, 256, 48.13),
        ("snowflake-zc706", 1, 256, 16.8),
    ],
)
def test_machines_of_the_papers(
    name: str, clusters: int, macs: int, bytes_per_cycle: float
) -> None:
    machine = of_description(SnowflakeMachine, load_machine(name))
    assert machine.core_count == clusters
    assert machine.core_count * machine.macs_per_cycle(2) == macs
    assert machine.memory_bytes_per_cycle == pytest.approx(bytes_per_cycle, rel=1e-3)
    assert machine.clusters.cus * machine.clusters.mbuf_bytes == macs // clusters * 1024
    assert name in machine_names()


def test_a_clock_of_seven_nanoseconds() -> None:
    assert 1000 / load_machine("snowflake-1cu").frequency_mhz == pytest.approx(7.0, rel=1e-12)


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [("clusters", "count", 3), ("clusters", "cus", 5), ("clusters", "mbuf_bytes", 1040),
     ("vector", "queue_depth", 0), ("dram", "bandwidth_gb_per_s", 0.0)],
)  # fmt: skip
def test_absurd_values_are_named(table: str, key: str, value: object) -> None:
    values = load_machine("snowflake-1cc").model_dump()
    values[table] = {**values[table], key: value}
    with pytest.raises(MachineError, match=f"{table}.{key}: .*{value}"):
        machine_from_dict(values)
