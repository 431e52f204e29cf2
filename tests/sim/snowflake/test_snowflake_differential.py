"""Random programs, a few; scripts/differential runs thousands."""

from __future__ import annotations

import random
from collections import Counter

from tests.sim.snowflake.differential import BUDGET, compare, interpreter
from tests.sim.snowflake.random_programs import program


def test_the_simulator_agrees_with_the_interpreter() -> None:
    found = {seed: compare(seed) for seed in range(250)}
    assert not {seed: text for seed, text in found.items() if text.startswith("differs")}
    kinds = Counter(text.split()[0] for text in found.values())
    assert kinds["agrees"] > 80 and kinds["traps"] > 40 and kinds["races"] > 20
    traps = {text.split()[1] for text in found.values() if text.startswith("traps")}
    assert len(traps) > 6
    assert kinds["beyond"] < 2, "too many programs are excused"


def test_a_sum_of_values_that_a_race_leaves_open_overflows_in_one_of_the_two() -> None:
    """The interpreter stops there; the simulator, with other values, comes to more races."""
    assert compare(810957717997) == "beyond"


def test_programs_have_what_the_document_allows() -> None:
    """Several clusters, both banks, units that work at the same time in programs without races."""
    machines, counts = set(), Counter[str]()
    for seed in range(60):
        made = program(random.Random(f"snowflake {seed}"))
        machines.add((made.machine.clusters.count, made.machine.clusters.cus))
        other = interpreter(made, strict=False)
        other.run(BUDGET)
        if not other.stops and not other.races:
            counts["banks"] += max(max(k.bank_load) for k in other.clusters) >= 0
            counts["shared"] += len(other.clusters) > 1 and bool(other.clusters[0].shared)
            counts["beside"] += sum(k.order.beside for k in other.clusters)
    assert len(machines) > 4 and counts["banks"] > 10 and counts["shared"] > 3
    assert counts["beside"] > 100, counts


def test_clusters_store_to_one_place_between_barriers() -> None:
    """Two stores without an order, in programs that no trap ends before it is seen."""
    programs = 0
    for seed in range(250):
        made = program(random.Random(f"snowflake {seed}"))
        other = interpreter(made, strict=False)
        other.run(BUDGET)
        stores = {(k.number, one.row) for k in other.clusters for one in k.order.issued["store"]}
        programs += any(
            {one, later} <= stores and one[0] != later[0] for one, later, _ in other.races
        )
    assert programs > 8
