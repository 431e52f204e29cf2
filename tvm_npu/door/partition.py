"""Which calls of a model form regions for the NPU, and what keeps the others on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tvm_npu.codegen.ops import Transpose
from tvm_npu.codegen.ops.functions import ONLY_PARTS
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.door.backend import LayerTypes, machine_layers, machine_makes, needed_layers
from tvm_npu.door.dataflow import Constant, Dataflow, OpCall, Result, Value
from tvm_npu.door.fallback import with_costs
from tvm_npu.door.importer import build_graph
from tvm_npu.door.layers import MAKES, only_a_part
from tvm_npu.door.paying import (
    border_operations,
    saved_operations,
    softmax_operations,
    works_with_weights,
)
from tvm_npu.door.recurrent import RecurrentChain, recurrent_chains
from tvm_npu.door.recurrent_layers import RECURRENT, layer_of
from tvm_npu.door.regions import execution_order, merge_regions
from tvm_npu.door.rule_table import (
    DOES_NOT_PAY,
    LAYOUT_ONLY,
    MACHINE_LACKS,
    NOTHING_TO_COMPUTE,
    ONLY_A_PART,
    SOFTMAX_IS_ROUNDED,
    SOFTMAX_STEPS,
    STEPS_ARE_NO_BATCH,
    TUPLE_IS_PICKED,
    check,
    check_types,
    refusal,
)
from tvm_npu.door.rules import Context, Violation
from tvm_npu.door.tokens import TokenLayer, token_layers
from tvm_npu.door.work import call_work
from tvm_npu.report import Refusal, RegionReport


@dataclass(frozen=True)
class Region:
    """Calls that become one program. ``inputs`` are read in this order, made outside and no
    constants; ``outputs`` are read outside or results of the model."""

    symbol: str
    calls: tuple[OpCall, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Result, ...]

    @property
    def flow(self) -> Dataflow:
        """The region alone."""
        return Dataflow(self.inputs, self.outputs, len(self.outputs) > 1)

    def report(self) -> RegionReport:
        macs = tuple(call_work(call).macs for call in self.calls)
        return RegionReport(
            symbol=self.symbol,
            operators=tuple((call.source, call.spelling) for call in self.calls),
            inputs=tuple(value.shape for value in self.inputs),
            outputs=tuple(value.shape for value in self.outputs),
            macs=sum(macs),
            operator_macs=macs,
        )


@dataclass(frozen=True)
class Partition:
    """The split of one model. ``pieces`` are all calls in an order in which they can run: regions
    in one piece, the others one by one."""

    pieces: tuple[Region | OpCall, ...]
    refusals: tuple[Refusal, ...]
    total_macs: int

    @property
    def regions(self) -> tuple[Region, ...]:
        return tuple(piece for piece in self.pieces if isinstance(piece, Region))


def partition(
    flow: Dataflow,
    context: Context,
    mod_name: str = "default",
    kept_out: Mapping[OpCall, Refusal] | None = None,
) -> Partition:
    """The largest regions whose operators keep the rules of ``context``, without the calls of
    ``kept_out``; ``mod_name`` goes into their symbols."""
    known_bad = kept_out or {}
    chains = tuple(
        chain
        for chain in accepted_chains(flow, context)
        if known_bad.keys().isdisjoint(chain.calls)
    )
    tokens = tuple(
        layer
        for layer in accepted_tokens(flow, context)
        if known_bad.keys().isdisjoint(layer.calls)
    )
    refused = _broken_rules(flow, chains, tokens, context)
    refused.update((flow.number_of[call], found) for call, found in known_bad.items())
    layers = [chain.calls for chain in chains] + [layer.calls for layer in tokens]
    together = [sorted(flow.number_of[call] for call in calls) for calls in layers]
    groups = _merged(flow, together, refused)
    while lacking := _lacking(flow, groups, context):
        refused.update(lacking)
        groups = _merged(flow, together, refused)
    if context.offload != "all" and (outside := _cheaper_outside(flow, groups)):
        refused.update(outside)
        groups = _merged(flow, together, refused)
    kept = []
    for group in groups:
        against = _worthless(flow, group, context)
        if against is None:
            kept.append(group)
        else:
            for number in group:
                refused[number] = refusal(flow.calls[number], *against)
    return Partition(
        pieces=tuple(_pieces(flow, kept, mod_name)),
        refusals=with_costs(flow, kept, refused),
        total_macs=sum(call_work(call).macs for call in flow.calls),
    )


def _worthless(
    flow: Dataflow, group: Sequence[int], context: Context
) -> tuple[str, Violation] | None:
    """The rule against a whole region, and what was found; None for one that is worth it."""
    calls = tuple(flow.calls[number] for number in group)
    if all(call.name in LAYOUT_ONLY for call in calls):
        found = f"a region of {len(group)} layout or activation operator{'s' * (len(group) > 1)}"
        return NOTHING_TO_COMPUTE, Violation(found, "at least one that computes")
    if context.offload == "all" or any(map(works_with_weights, calls)):
        return None
    region = _region(flow, group, "")
    saved, costs = saved_operations(calls), border_operations(region.inputs, region.outputs)
    if saved > costs:
        return None
    return DOES_NOT_PAY, Violation(f"saves {saved:,} operations", f"more than {costs:,}")


def _cheaper_outside(flow: Dataflow, groups: Sequence[Sequence[int]]) -> dict[int, Refusal]:
    """Softmax calls whose result their region only moves and hands out, and which the CPU makes in
    less time, by the number of the call."""
    found = {}
    for group in groups:
        read_inside: set[int] = set()  # by calls that do more than to move what leaves
        for number in sorted(group, reverse=True):
            call = flow.calls[number]
            if number not in read_inside and call.name in LAYOUT_ONLY:
                continue
            if number not in read_inside and call.name == "softmax":
                saved, costs = saved_operations((call,)), softmax_operations(call)
                if saved <= costs:
                    violation = Violation(f"saves {saved:,} operations", f"more than {costs:,}")
                    found[number] = refusal(call, SOFTMAX_STEPS, violation)
                    continue
            read_inside.update(flow.reads[number])
    return found


def accepted_chains(flow: Dataflow, context: Context) -> tuple[RecurrentChain, ...]:
    """Recurrent layers that the machine has code for; their calls keep the rules of all types and
    those of memory. The calls of others are looked at one by one."""
    if not any(needed_layers(kind) <= machine_layers(context.machine) for kind in RECURRENT):
        return ()
    return tuple(
        chain
        for chain in recurrent_chains(flow)
        if needed_layers(layer_of(chain)) <= machine_layers(context.machine)
        and all(check_types(call, context) is None for call in chain.calls)
    )


def accepted_tokens(flow: Dataflow, context: Context) -> tuple[TokenLayer, ...]:
    """Fully connected layers over tokens that become one layer each on this machine. Their reshapes
    take the batch of 1 away and put it back."""
    if not needed_layers(Transpose) <= machine_layers(context.machine):
        return ()
    return tuple(
        layer
        for layer in token_layers(flow)
        if check(layer.dense, context) is None
        and all(check_types(call, context) is None for call in layer.calls)
    )


def _broken_rules(
    flow: Dataflow,
    chains: Sequence[RecurrentChain],
    tokens: Sequence[TokenLayer],
    context: Context,
) -> dict[int, Refusal]:
    """By the number of the call. Calls of ``chains`` and ``tokens`` keep them; who reads a chain's
    sequence as if it were images does not."""
    inside = {call for chain in chains for call in chain.calls}
    inside.update(call for layer in tokens for call in layer.calls)
    sequences = {value for chain in chains for value in chain.sequences}
    read_whole, statistics_read = set(), set()
    for _, value in flow.uses():
        if isinstance(value, Result):
            if value.is_tuple and not value.path:
                read_whole.add(value.call)
            elif value.call.name == "batch_norm" and value.path[:1] > (0,):
                statistics_read.add(value.call)
    rounded = _rounded_softmax(flow)
    refused = {}
    for number, call in enumerate(flow.calls):
        if call in inside:
            continue
        found = check(call, context)
        if found is None and not sequences.isdisjoint(call.operands):
            steps = Violation("a sequence, with its steps first", "an image, with the batch first")
            found = refusal(call, STEPS_ARE_NO_BATCH, steps)
        if found is None and call in rounded:
            values = Violation("a result that is rounded", "a result that is not")
            found = refusal(call, SOFTMAX_IS_ROUNDED, values)
        if found is None and call in read_whole:
            whole = Violation("a tuple as it is", "single results")
            found = refusal(call, TUPLE_IS_PICKED, whole)
        if found is None and call in statistics_read:
            found = refusal(call, TUPLE_IS_PICKED, Violation("running statistics", "result 0"))
        if found is not None:
            refused[number] = found
    return refused


def _rounded_softmax(flow: Dataflow) -> frozenset[OpCall]:
    """Softmax calls of which a quantized model takes integers: a quotient that is rounded."""
    found = set()
    for call in flow.calls:
        quotient = call.operands[0] if call.name == "round" else None
        if isinstance(quotient, Result) and quotient.call.name == "clip":
            quotient = quotient.call.operands[0]
        if isinstance(quotient, Result) and quotient.call.name == "divide":
            value = quotient.call.operands[0]
            if isinstance(value, Result) and value.call.name == "softmax":
                found.add(value.call)
    return frozenset(found)


def _merged(
    flow: Dataflow, together: Sequence[Sequence[int]], refused: dict[int, Refusal]
) -> tuple[tuple[int, ...], ...]:
    supported = [number not in refused for number in range(len(flow.calls))]
    return merge_regions(flow.reads, supported, together)


def _lacking(
    flow: Dataflow, groups: Sequence[Sequence[int]], context: Context
) -> dict[int, Refusal]:
    """Operators of regions that would end as a layer for which the machine has no code, by the
    number of the call.

    Whether an operator becomes a layer of its own hangs on its neighbours (an activation behind a
    convolution is part of it), so regions are asked, not operators.
    """
    known = machine_layers(context.machine)
    found = {}
    limit = f"{_called(known)} on {context.machine.name}"
    for group in groups:
        names = {flow.calls[number].name for number in group}
        has_code = all(
            needed_layers(kind) <= known for name in names for kind in MAKES.get(name, ())
        )
        if has_code and ONLY_PARTS.isdisjoint(names):
            continue
        graph, builder = build_graph(_region(flow, group, "").flow, "region")
        for layer in fuse(graph, machine_makes(context.machine)).layers:
            lacking = needed_layers(type(layer)) - known
            call = builder.calls[layer.name]
            part = only_a_part(layer)
            if part is not None:
                alone = Violation(part, "a function without poles")
                found[flow.number_of[call]] = refusal(call, ONLY_A_PART, alone)
            elif lacking:
                lacks = Violation(_called(lacking), limit)
                found[flow.number_of[call]] = refusal(call, MACHINE_LACKS, lacks)
    return found


def _called(layers: LayerTypes) -> str:
    """``FixedConv, FixedPool`` -> ``conv, pool``."""
    names = sorted(layer.__name__.removeprefix("Fixed").lower() for layer in layers)
    return ", ".join(names) or "none"


def _pieces(
    flow: Dataflow, groups: Sequence[Sequence[int]], mod_name: str
) -> Iterator[Region | OpCall]:
    by_first = {group[0]: group for group in groups}
    count = 0
    for piece in execution_order(flow.reads, by_first.values()):
        if piece[0] in by_first:
            yield _region(flow, piece, region_symbol(mod_name, count))
            count += 1
        else:
            yield flow.calls[piece[0]]


def region_symbol(mod_name: str, number: int) -> str:
    """The global symbol of a region."""
    return f"tvmgen_{mod_name.replace('-', '_')}_npu_main_{number}"


def _region(flow: Dataflow, group: Sequence[int], symbol: str) -> Region:
    calls = tuple(flow.calls[number] for number in group)
    inside = set(calls)

    def made_inside(value: Value) -> bool:
        return isinstance(value, Result) and value.call in inside

    inputs = dict.fromkeys(
        value
        for call in calls
        for value in call.operands
        if not isinstance(value, Constant) and not made_inside(value)
    )
    outputs = dict.fromkeys(
        value
        for reader, value in flow.uses()
        if isinstance(value, Result) and value.call in inside and reader not in inside
    )
    return Region(symbol, calls, tuple(inputs), tuple(outputs))
