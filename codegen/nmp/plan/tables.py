"""Tables behind requantize steps: the room they take, and which layers get the one behind them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Requantized, chw
from tvm_npu.codegen.nmp.plan.traffic import flat_transfer, least_bias_bytes
from tvm_npu.codegen.ops import FixedBroadcast, FixedConv, FixedElementwise, FixedTable
from tvm_npu.codegen.passes.slopes import MOST_SLOPES
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.arithmetic import aligned
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.xnmp import TABLE_ENTRIES

LEAST_BYTES_FOR_SLOPES = 2 * MOST_SLOPES * BIAS_BYTES
"""A bias buffer with room for the slopes of all channels of a layer, and for its biases."""
WITH_TABLE = (FixedConv, FixedElementwise, FixedBroadcast)


def table_bytes(element_bytes: int) -> int:
    """Of the bias buffer, in whole words."""
    return aligned(TABLE_ENTRIES[element_bytes] * element_bytes, BIAS_BYTES)


def constant_bytes(layer: Requantized, element_bytes: int) -> int | None:
    """What lies beside the biases of a layer: its table, or the slopes or scale words of all its
    channels."""
    if layer.table is not None:
        return table_bytes(element_bytes)
    if layer.rescaling is not None and len(layer.rescaling) > 1:
        return len(layer.rescaling) * BIAS_BYTES
    if layer.slopes is not None and len(layer.slopes) > 1:
        return len(layer.slopes) * BIAS_BYTES
    return None


def constants_cycles(layer: FixedLayer, element_bytes: int, machine: NmpMachine) -> float:
    """Time of the engine of a TLE, which waits for nothing else, for what `constant_bytes` counts;
    all TLEs load it at the same time."""
    needed = None
    if isinstance(layer, FixedTable):
        needed = table_bytes(element_bytes)
    elif isinstance(layer, Requantized):
        needed = constant_bytes(layer, element_bytes)
    if needed is None:
        return 0.0
    load = flat_transfer(needed, 1, machine.dram.burst_bytes)
    return load.engine_cycles(machine, machine.cores.tles)


def room_for(problem: object, machine: NmpMachine) -> NmpMachine:
    """``machine`` as planners see it for a convolution: with the bias buffer that its table or
    slopes leave, and with as much of MB2 as results that are wider than operands leave."""
    if not isinstance(problem, ConvProblem):
        return machine
    widening = (problem.out_bytes or 0) > problem.element_bytes
    if not problem.table_bytes and not widening:
        return machine
    room = machine.memories
    memories = room.model_copy(
        update={
            "bias_bytes": room.bias_bytes - (problem.table_bytes or 0),
            "mb2_bytes": room.mb2_bytes // (2 if widening else 1),
        }
    )
    return machine.model_copy(update={"memories": memories})


def has_room(layer: FixedLayer, fixed: FixedGraph, machine: NmpMachine) -> bool:
    """Whether a table lies beside the biases of ``layer``, however few TLTs share them."""
    left = machine.memories.bias_bytes - table_bytes(fixed.width_of(layer.inputs[0]))
    if not isinstance(layer, FixedConv):
        return left >= 0
    filters = len(layer.weight) if layer.is_dense else chw(fixed.shapes[layer.output])[0]
    return left >= max(BIAS_BYTES, least_bias_bytes(filters // layer.groups, machine))


def with_tables(fixed: FixedGraph, machine: NmpMachine) -> FixedGraph:
    """before: x -> conv -> a -> table -> y      (a is read by nothing else, and is no output)
    after:  x -> conv with the table -> y    (sums and products likewise)

    The same values: a requantized accumulator is what the table is asked for.
    """
    uses = Counter(tensor for layer in fixed.layers for tensor in layer.inputs)
    makers = {tensor: layer for layer in fixed.layers for tensor in layer.outputs}
    changes: dict[str, FixedLayer | None] = {}
    for layer in fixed.layers:
        if not isinstance(layer, FixedTable):
            continue
        tensor = layer.inputs[0]
        maker = makers.get(tensor)
        alone = uses[tensor] == 1 and tensor not in fixed.outputs
        if not isinstance(maker, WITH_TABLE) or maker.slopes is not None or maker.out_bytes:
            continue
        if maker.rescaling is not None:  # which takes the registers of a table
            continue
        if alone and has_room(maker, fixed, machine):
            changes[layer.name] = None
            changes[maker.name] = replace(
                maker, outputs=layer.outputs, table=layer.table, source=maker.source + layer.source
            )
    found = (changes.get(layer.name, layer) for layer in fixed.layers)
    return replace(fixed, layers=tuple(layer for layer in found if layer is not None))
