"""What operators cost that stay on the CPU: time there, bytes that pass, regions that it parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from tvm_npu.door.dataflow import Dataflow, OpCall, Result, TensorType
from tvm_npu.door.paying import OPERATIONS_PER_US, saved_operations, worked_elements
from tvm_npu.door.work import call_work
from tvm_npu.report.placement import FallbackCost, Refusal


def with_costs(
    flow: Dataflow, groups: Sequence[Sequence[int]], refused: Mapping[int, Refusal]
) -> tuple[Refusal, ...]:
    """``refused`` by the number of the call, in the order of the model, with their costs beside
    the regions ``groups``."""
    region_of = {flow.calls[n]: number for number, group in enumerate(groups) for n in group}
    touching = _touching(flow, region_of)
    return tuple(
        replace(refused[number], cost=_cost(flow.calls[number], touching[flow.calls[number]]))
        for number in sorted(refused)
    )


def _touching(
    flow: Dataflow, region_of: Mapping[OpCall, int]
) -> dict[OpCall, dict[Result, set[int]]]:
    """For each call on the CPU the tensors that it reads from regions or makes for them, and those
    regions."""
    found: dict[OpCall, dict[Result, set[int]]] = {call: {} for call in flow.calls}
    for reader, value in flow.uses():
        if not isinstance(value, Result):
            continue
        maker = value.call
        if maker in region_of and reader is not None and reader not in region_of:
            found[reader].setdefault(value, set()).add(region_of[maker])
        if reader is not None and reader in region_of and maker not in region_of:
            found[maker].setdefault(value, set()).add(region_of[reader])
    return found


def _cost(call: OpCall, tensors: Mapping[Result, set[int]]) -> FallbackCost:
    operations = max(saved_operations((call,)), 2 * call_work(call).macs)
    regions = set().union(*tensors.values())
    return FallbackCost(
        elements=worked_elements(call),
        cpu_us=operations / OPERATIONS_PER_US,
        crossing_bytes=sum(_bytes(type_) for value in tensors for type_ in value.types),
        more_regions=max(0, len(regions) - 1),
    )


def _bytes(type_: TensorType) -> int:
    """0 for a tensor of unknown extents."""
    shape, bits = type_.static_shape, re.search(r"\d+", str(type_.dtype))
    return 0 if shape is None else prod(shape) * (8 if bits is None else int(bits[0])) // 8
