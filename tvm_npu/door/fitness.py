"""What calibration says against calls of a region: values that no Q-point holds, and arithmetic
that cancels what the CPU hands over, so that hardly a digit of it is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tvm_npu.codegen.fixed_point import MIN_Q_POINT, element_limits, largest_q_point
from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.passes.calibrate import Ranges
from tvm_npu.door import geometry
from tvm_npu.door.calibrate import Unfit
from tvm_npu.door.dataflow import Constant, OpCall, Result
from tvm_npu.door.graph_builder import GraphBuilder
from tvm_npu.door.importer import build_graph
from tvm_npu.door.partition import Region
from tvm_npu.door.rule_table import CANCELS, TOO_WIDE, refusal
from tvm_npu.door.rules import Violation
from tvm_npu.options import NpuOptions
from tvm_npu.report import Refusal

BITS_LEFT = {1: 5, 2: 9}
"""Bytes of an element -> bits, sign apart, that arithmetic on what the CPU hands over must leave of
it: 9 bits of 15 mean that a result may be 64 times smaller than an operand."""

_KEEPS_SCALE = frozenset({"add", "subtract", "negative", "relu", "clip", "maximum", "minimum"})
_SCALES = frozenset({"multiply", "divide"})


def widest(element_bytes: int) -> float:
    """The largest magnitude that the smallest Q-point holds."""
    return float(element_limits(element_bytes)[1]) * 2.0**-MIN_Q_POINT


def input_names(region: Region) -> tuple[str, ...]:
    """What users know the inputs of a region by: the operators that make them."""
    return tuple(
        f"{value.call.spelling} {value.call.source!r}"
        if isinstance(value, Result)
        else f"input {getattr(value, 'name', '')!r}"
        for value in region.inputs
    )


def unfit_calls(
    regions: Iterable[Region], ranges: Mapping[str, Ranges], options: NpuOptions
) -> dict[OpCall, Refusal]:
    """What the ranges of ``regions``, by symbol, say against their calls."""
    found: dict[OpCall, Refusal] = {}
    for region in regions:
        known = ranges[region.symbol]
        for unfit in unfit_tensors(region.symbol, known, options.element_bytes):
            found.update(too_wide(region, unfit, options.element_bytes))
        if options.offload != "all":
            found.update(cancelling(region, known, options.element_bytes))
    return found


def unfit_tensors(symbol: str, ranges: Ranges, element_bytes: int) -> Iterator[Unfit]:
    """Those whose values are too large."""
    for tensor in ranges:
        entry = ranges[tensor]
        magnitude = max(abs(entry.low), abs(entry.high))
        if magnitude > 0.0 and largest_q_point(magnitude, element_bytes) < MIN_Q_POINT:
            yield Unfit(symbol, tensor, f"values from {entry.low:g} to {entry.high:g}")


def too_wide(region: Region, unfit: Unfit, element_bytes: int) -> dict[OpCall, Refusal]:
    """The calls of ``region`` that make or read a tensor that no Q-point holds."""
    graph, builder = build_graph(region.flow, region.symbol)
    found = Violation(unfit.found, f"magnitudes up to {widest(element_bytes):g}")
    layers = [layer for layer in graph.layers if unfit.tensor in (*layer.inputs, *layer.outputs)]
    calls = (builder.calls[layer.name] for layer in layers)
    return {call: refusal(call, TOO_WIDE, found) for call in calls}


def cancelling(region: Region, ranges: Ranges, element_bytes: int) -> dict[OpCall, Refusal]:
    """Calls that read a result of the CPU, and that sums and bounds make so small that its
    quantization step shows: ``relu(1 - e)`` for an e up to 22026 has steps of 0.67."""
    graph, builder = build_graph(region.flow, region.symbol)
    bits = 8 * element_bytes - 1
    limit = 2.0 ** (bits - BITS_LEFT[element_bytes])
    refused = {}
    for tensor in graph.inputs:
        magnitude = _magnitude(ranges, tensor)
        for layer in graph.layers:
            if tensor not in layer.inputs or not magnitude:
                continue
            smallest = min(_ratios(graph, builder, ranges, layer.name, magnitude), default=1.0)
            if smallest * limit < 1.0:
                call = builder.calls[layer.name]
                found = f"{magnitude:g} becomes {magnitude * smallest:g}"
                allowed = f"a result at most {limit:g} times smaller"
                refused[call] = refusal(call, CANCELS, Violation(found, allowed))
    return refused


def _ratios(
    graph: Graph, builder: GraphBuilder, ranges: Ranges, name: str, magnitude: float
) -> Iterator[float]:
    """Magnitudes of what a chain of sums and bounds that begins with layer ``name`` puts out, by
    that of ``magnitude`` carried along."""
    todo = [(name, magnitude)]
    layers = {layer.name: layer for layer in graph.layers}
    seen = set()
    while todo:
        name, carried = todo.pop()
        gain = _gain(builder.calls[name])
        if gain is None or name in seen:
            continue
        seen.add(name)
        carried *= gain
        for output in layers[name].outputs:
            known = _magnitude(ranges, output)
            if known and carried:
                yield known / carried
            todo += [(layer.name, carried) for layer in graph.layers if output in layer.inputs]


def _gain(call: OpCall) -> float | None:
    """How a call scales what it reads; None when it is no sum, bound or product with a number."""
    if call.name in _KEEPS_SCALE:
        return 1.0
    if call.name not in _SCALES:
        return None
    constants = [value for value in call.operands if isinstance(value, Constant)]
    vector = geometry.channel_vector(constants[0].array, call.shape) if constants else None
    if vector is None or abs(vector).min() != abs(vector).max() or not vector[0]:
        return None
    factor = float(abs(vector[0]))
    return 1.0 / factor if call.name == "divide" else factor


def _magnitude(ranges: Ranges, tensor: str) -> float:
    """0 for a tensor without a range: one that fusing took away."""
    if tensor not in ranges:
        return 0.0
    entry = ranges[tensor]
    return max(abs(entry.low), abs(entry.high))
