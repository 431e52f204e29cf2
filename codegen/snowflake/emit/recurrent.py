"""LSTM and GRU layers: where their sequences, states, weights and tables lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.ops import FixedGru, FixedLstm
from tvm_npu.codegen.program.parts import Segment
from tvm_npu.codegen.snowflake.emit.place import LayerSteps, Site
from tvm_npu.codegen.snowflake.plan.recurrent import (
    RecurrentPlan,
    RecurrentShape,
    recurrent_geometry,
)
from tvm_npu.codegen.snowflake.steps.cells import (
    Cell,
    gru_cell,
    gru_gates,
    lstm_cell,
    lstm_gates,
)
from tvm_npu.codegen.snowflake.steps.gates import Gates, arranged_gates
from tvm_npu.codegen.snowflake.steps.recurrent import RecurrentLayer, Vector

WORD: np.dtype[np.int16] = np.dtype("<i2")


def lstm_layer(layer: FixedLstm, site: Site) -> list[LayerSteps]:
    functions = (
        ("sigmoid", layer.sigmoid), ("tanh", layer.tanh), ("tanh", layer.cell_tanh)
    )  # fmt: skip
    return _layer(layer, site, lstm_cell(layer), lstm_gates(layer), functions)


def gru_layer(layer: FixedGru, site: Site) -> list[LayerSteps]:
    functions = (
        ("sigmoid", layer.sigmoid), ("complement", layer.complement), ("tanh", layer.tanh)
    )  # fmt: skip
    return _layer(layer, site, gru_cell(layer), gru_gates(layer), functions)


def _layer(
    layer: FixedLstm | FixedGru, site: Site, cell: Cell, gates: Sequence[Sequence[Gates]],
    functions: Sequence[tuple[str, Any]],
) -> list[LayerSteps]:  # fmt: skip
    shape, plan = site.planned.problem, site.planned.plan
    assert isinstance(shape, RecurrentShape) and isinstance(plan, RecurrentPlan)
    element_bytes = site.region.fixed.element_bytes
    geometry = recurrent_geometry(shape, plan, site.machine)
    words, pieces = arranged_gates(geometry, gates)
    tables = tuple(site.tables.add(name, table, element_bytes) for name, table in functions)
    initial, final = [], []
    for number, (state, place) in enumerate(zip(layer.states, cell.states, strict=True)):
        begins = _vector(site, state.initial, place, shape.hidden)
        initial.append(begins)
        final.append(_vector(site, layer.outputs[1 + number], place, shape.hidden))
        kept = site.region.storage.state_offsets[state.tensor]
        final.append(Vector(place, shape.hidden, Segment.STATES, kept))
    source, target = site.tensor(layer.inputs[0]), site.tensor(layer.outputs[0])
    made = RecurrentLayer(
        site.index, geometry, cell.phases, tables, pieces,
        site.constants.add(words, WORD, f"layer {layer.name!r}, weights"), source.offset,
        target.offset, initial[0], tuple(initial), tuple(final), layer.gate_shift,
        element_limits(element_bytes),
    )  # fmt: skip
    return [LayerSteps([(made.steps(), made.rooms, "maps")])]


def _vector(site: Site, tensor: str | None, place: int, words: int) -> Vector:
    """A state in MBuf and its copy in memory: a tensor, or zeros."""
    if tensor is not None:
        return Vector(place, words, Segment.ACTIVATIONS, site.tensor(tensor).offset)
    zeros = site.constants.add(np.zeros(words, WORD), WORD, "zeros of a state")
    return Vector(place, words, Segment.CONSTANTS, zeros)
