"""What operators on the CPU cost: from shapes that nobody chose, by counting."""

from __future__ import annotations

import numpy as np
import pytest

from tests.door.flows import call, x
from tvm_npu.door.dataflow import Dataflow, Input, OpCall, Result, TensorType
from tvm_npu.door.fallback import with_costs
from tvm_npu.report.placement import FallbackCost, Refusal

REFUSED = Refusal("", "op", "rule", "found", "allowed")


def chain(shapes: list[tuple[int, ...]]) -> list[OpCall]:
    """Calls one behind the other; the result of each has a shape."""
    calls: list[OpCall] = []
    last: Input | Result = Input((TensorType(shapes[0], "float32"),), name="x")  # type: ignore[call-arg]
    for number, shape in enumerate(shapes):
        types = (TensorType(shape, "float32"),)
        calls.append(OpCall("tanh" if number % 2 else "abs", (last,), types, f"op{number}"))
        last = Result(types, call=calls[-1])
    return calls


@pytest.mark.parametrize("seed", range(5))
def test_costs_of_a_chain(seed: int) -> None:
    """Regions are the even calls, or all but one; what lies between them stays on the CPU."""
    random = np.random.default_rng(seed)
    count = int(random.integers(3, 9))
    shapes = [tuple(int(n) for n in random.integers(1, 30, 4)) for _ in range(count)]
    calls = chain(shapes)
    flow = Dataflow(calls[0].operands, (Result(calls[-1].types, call=calls[-1]),), False)
    outside = sorted(random.choice(count, int(random.integers(1, count)), replace=False).tolist())
    groups, group = [], []
    for number in range(count):
        if number in outside:
            groups, group = [*groups, group] if group else groups, []
        else:
            group = [*group, number]
    groups = [*groups, group] if group else groups
    found = with_costs(flow, groups, dict.fromkeys(outside, REFUSED))
    assert len(found) == len(outside)
    for number, one in zip(outside, found, strict=True):
        cost, size = one.cost, [int(np.prod(shape)) for shape in shapes]
        assert cost is not None and cost.elements == size[number]
        assert cost.cpu_us == size[number] * (16 if number % 2 else 1) / 2_000
        before = number > 0 and number - 1 not in outside
        behind = number + 1 < count and number + 1 not in outside
        assert cost.crossing_bytes == 4 * (before * size[number - 1] + behind * size[number])
        assert cost.more_regions == int(before and behind)


@pytest.mark.parametrize("seed", range(4))
def test_reductions_cost_what_they_read(seed: int) -> None:
    """By NumPy: how many numbers the windows of a pool, or the axes of a sum, hold in all."""
    random = np.random.default_rng(seed)
    shape = (1, *(int(n) for n in random.integers(5, 20, 3)))
    numbers = np.empty(shape, np.float32)
    axes = tuple(sorted(random.choice([1, 2, 3], int(random.integers(1, 4)), False).tolist()))
    rows, columns = (int(n) for n in random.integers(1, 5, 2))
    windows = np.lib.stride_tricks.sliding_window_view(numbers, (rows, columns), (2, 3))
    pooled = call("max_pool2d", x(*shape), to=windows.shape[:4], pool_size=[rows, columns])
    for name, one, read in (
        ("mean", call("mean", x(*shape), to=numbers.sum(axes).shape, axis=axes), numbers.size),
        ("variance", call("variance", x(*shape), to=()), numbers.size),
        ("max_pool2d", pooled, max(windows.size, numbers.size)),
    ):
        last = Result(one.types, call=one)
        (found,) = with_costs(Dataflow(one.operands, (last,), False), [], {0: REFUSED})
        assert found.cost == FallbackCost(read, read / 2_000, 0, 0), name


def test_costs_in_words() -> None:
    cost = FallbackCost(1000, 2.25, 4000, 1) + FallbackCost(10, 0.05, 0, 1)
    assert str(cost) == (
        "1,010 elements, about 2.3 us on the CPU; 4,000 bytes pass between CPU and NPU; "
        "2 more regions"
    )
    assert str(FallbackCost(1, 123.4, 0, 0)) == "1 element, about 123 us on the CPU"
    cost = FallbackCost(5, 0.5, 0, 0)
    one = Refusal("n", "nn.lrn", "Rule.", "a", "b", cost, "docs/rules.md#x", "buy one")
    assert str(one) == (
        "nn.lrn 'n' stays on the CPU, for it breaks the rule \"Rule.\" (found: a; allowed: b); it "
        "costs 5 elements, about 0.5 us on the CPU; what helps: buy one; see docs/rules.md#x"
    )
