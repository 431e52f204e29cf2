"""Statistics of all kinds: rows are the machine's units, sums are sums."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_npu.sim.machine_file import load_machine, machine_names
from tvm_npu.sim.statistics import DRAM, Counts, MovedBytes, RunStatistics, add, collect
from tvm_npu.sim.streams import Stream

NAMES = ("first", "second", "third")


def random_counts(name: str, seed: int) -> Counts:
    machine = load_machine(name)
    units = [unit for unit in machine.units() if unit.role != "memory"]
    parts = {unit.part for unit in machine.units() if unit.role == "memory"}
    rows = len(NAMES) + 1
    draw = np.random.default_rng(seed)

    def count(*shape: int) -> np.ndarray:
        return draw.integers(0, 100, (rows, *shape))

    ends = np.cumsum(count())
    return Counts(
        count(len(units)).astype(float), count(len(units)).astype(float),
        count(len(machine.links()), len(Stream)), count(len(parts) - 1, 2), count(), count(),
        count(), count(), ends.astype(float), float(ends[-1]), 7,
    )  # fmt: skip


def found(name: str, seed: int) -> RunStatistics:
    return collect(random_counts(name, seed), load_machine(name), NAMES, 1)


@pytest.mark.parametrize("name", machine_names())
def test_units_and_links_of_every_machine(name: str) -> None:
    machine = load_machine(name)
    units = machine.units()
    assert len({unit.name for unit in units}) == len(units)
    roles = [unit.role for unit in units]
    assert sorted(roles, key=("control", "mac", "dma", "memory").index) == roles
    assert roles.count("mac") >= 1 and units[-1].name == DRAM
    assert all((unit.capacity_bytes > 0) == (unit.role == "memory") for unit in units)
    assert [link.name for link in machine.links()][:2] == ["loaded", "stored"]
    statistics = found(name, 3)
    names = [unit.name for unit in units if unit.role != "memory"]
    assert [unit.name for unit in statistics.units] == names
    assert set(statistics.bytes_by_memory) == {u.part for u in units if u.role == "memory"}


@given(name=st.sampled_from(machine_names()), seed=st.integers(0, 1 << 20))
@settings(max_examples=examples(20), deadline=None)
def test_layers_and_the_rest_are_the_run(name: str, seed: int) -> None:
    counts, run = random_counts(name, seed), found(name, seed)
    frame = Counts(**{
        item.name: value[-1:] if isinstance(value := getattr(counts, item.name), np.ndarray)
        else value
        for item in fields(Counts)
    })  # fmt: skip
    parts = [*run.layers, collect(frame, load_machine(name), (), 1)]
    assert run.macs == sum(part.macs for part in parts) == counts.macs.sum()
    assert run.moved_bytes == sum(part.moved_bytes for part in parts)
    assert run.moved_bytes == counts.link_bytes[:, :2].sum()
    for k, unit in enumerate(run.units):
        assert unit.busy_cycles == counts.busy_cycles[:, k].sum()
        assert unit.wait_cycles == sum(part.units[k].wait_cycles for part in parts)
    for memory, moved in run.bytes_by_memory.items():
        each = [part.bytes_by_memory[memory] for part in parts]
        assert moved.read_bytes == sum(one.read_bytes for one in each)
        assert moved.written_bytes == sum(one.written_bytes for one in each)
    read = sum(run.loaded_bytes.values())
    assert run.bytes_by_memory[DRAM] == MovedBytes(read, run.moved_bytes - read)


@given(name=st.sampled_from(machine_names()), seed=st.integers(0, 1 << 20))
@settings(max_examples=examples(10), deadline=None)
def test_adding(name: str, seed: int) -> None:
    one = found(name, seed)
    three = add(add(one, one), one)
    assert (three.runs, three.cycles, three.macs) == (3, 3 * one.cycles, 3 * one.macs)
    assert three.mac_utilization == pytest.approx(one.mac_utilization)
    assert three.code_bytes == one.code_bytes and three.machine == one.machine
    for single, sum_ in ((one, three), *zip(one.layers, three.layers, strict=True)):
        assert sum_.loaded_bytes == {key: 3 * n for key, n in single.loaded_bytes.items()}
        assert sum_.busy_cycles("mac") == tuple(3 * n for n in single.busy_cycles("mac"))
        assert sum_.bytes_by_memory.keys() == single.bytes_by_memory.keys()
        for memory, moved in single.bytes_by_memory.items():
            wanted = MovedBytes(3 * moved.read_bytes, 3 * moved.written_bytes)
            assert sum_.bytes_by_memory[memory] == wanted
    other = found(name, seed + 1)
    both = add(one, other)
    for link, streams in both.bytes_by_link.items():
        for stream, total in streams.items():
            assert total == one.bytes_over(link).get(stream, 0) + other.bytes_over(link).get(
                stream, 0
            )
