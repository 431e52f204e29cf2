"""Programs that share an engine, by hand."""

from __future__ import annotations

import pytest

from tvm_npu.codegen.nmp.plan.queue_walk import Ask, Signal, Wait, Work, walked_cycles


def test_the_engine_serves_in_the_order_of_asking() -> None:
    first = [Work(5.0), Ask(10.0, "a"), Wait("a"), Work(1.0)]
    second = [Ask(20.0, "b"), Wait("b"), Work(2.0), Ask(4.0, "c"), Wait("c"), Ask(9.0, "d")]
    # b until 20, a until 30, c until 34; the first program ends at 31, nobody waits for d.
    assert walked_cycles([iter(first), iter(second)]) == 34.0
    # At one time the order of the programs decides: a until 10, b until 30, c until 36.
    assert walked_cycles([iter(first[1:]), iter(second)]) == 36.0


def test_a_program_waits_for_as_many_as_it_says() -> None:
    waits = [Wait("free", 2), Work(1.0)]
    frees = [[Work(cycles), Signal("free")] for cycles in (7.0, 3.0, 9.0)]
    assert walked_cycles([iter(one) for one in (waits, *frees)]) == 9.0
    assert walked_cycles([iter(waits), iter(frees[0]), iter(frees[1])]) == 8.0
    # What has come before is not waited for.
    late = [Work(20.0), Wait("free", 2), Work(1.0)]
    assert walked_cycles([iter(late), *map(iter, frees)]) == 21.0


def test_nothing_comes() -> None:
    with pytest.raises(ValueError, match="programs wait for what never comes: 'free'"):
        walked_cycles([iter([Wait("free", 2)]), iter([Signal("free")])])
