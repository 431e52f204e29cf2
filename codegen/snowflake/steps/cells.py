"""What a time step of an LSTM or GRU layer does: vectors in MBuf, sums, elementwise operations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_npu.codegen.ops import FixedGru, FixedLstm
from tvm_npu.codegen.snowflake.plan.recurrent import PhaseShape, RecurrentShape, SumShape
from tvm_npu.codegen.snowflake.plan.tiling import line
from tvm_npu.codegen.snowflake.steps.gates import Gates
from tvm_npu.codegen.snowflake.steps.recurrent import Phase, Stream, Sums
from tvm_npu.sim.snowflake.isa import MacMode

MULTIPLY, ADD, TABLE = MacMode.MULTIPLY, MacMode.ADD, MacMode.TABLE


@dataclass(frozen=True)
class Cell:
    """What a time step does. ``states`` are the words of MBuf where the layer's states lie, in
    their order, the hidden state first."""

    phases: tuple[Phase, ...]
    states: tuple[int, ...]
    words: int


class _Places:
    """Vectors one after the other, behind two inputs."""

    def __init__(self, inputs: int) -> None:
        self.end = 2 * line(inputs)

    def take(self, words: int) -> int:
        begin, self.end = self.end, self.end + line(words)
        return begin


def lstm_cell(layer: FixedLstm) -> Cell:
    """`FixedLstm`; rows of gates in the order i, f, o, g, tables sigmoid, tanh, tanh of the
    cell."""
    n, inputs = layer.hidden_weight.shape[1], layer.input_weight.shape[1]
    places = _Places(inputs)
    h, c, gates = places.take(n), places.take(n), places.take(4 * n)
    i, f, o, g = (gates + n * number for number in range(4))
    streams = (
        Stream(TABLE, i, i, i, 3 * n, table=0),
        Stream(TABLE, g, g, g, n, table=1),
        Stream(MULTIPLY, f, c, c, n, layer.keep_shift),
        Stream(MULTIPLY, i, g, i, n, layer.new_shift),
        Stream(ADD, c, i, c, n),
        Stream(TABLE, c, c, g, n, table=2),
        Stream(MULTIPLY, o, g, h, n, layer.hidden_shift),
    )
    return Cell((Phase((Sums(4 * n, gates, True, h),), streams),), (h, c), places.end)


def lstm_gates(layer: FixedLstm) -> list[list[Gates]]:
    i, f, g, o = np.split(np.arange(len(layer.bias)), 4)
    order = np.concatenate((i, f, o, g))
    return [[Gates(
        layer.input_weight[order], layer.hidden_weight[order], (layer.bias[order],)
    )]]  # fmt: skip


def gru_cell(layer: FixedGru) -> Cell:
    """`FixedGru`; tables sigmoid, complement, tanh."""
    n, inputs = layer.hidden_weight.shape[1], layer.input_weight.shape[1]
    places = _Places(inputs)
    h, gates, y, own, m = (places.take(words) for words in (n, 2 * n, n, n, n))
    r, z = gates, gates + n
    unit = layer.unit_shift
    opened = (Stream(TABLE, z, z, y, n, table=1), Stream(TABLE, r, r, r, 2 * n, table=0))
    closed = (
        Stream(TABLE, own, own, own, n, table=2),
        Stream(MULTIPLY, z, h, z, n, unit),
        Stream(MULTIPLY, y, own, own, n, layer.new_shift),
        Stream(ADD, z, own, h, n),
    )
    both = Sums(2 * n, gates, True, h)
    if layer.linear_before_reset:
        sums = (both, Sums(n, own, True, None), Sums(n, m, False, h))
        reset = (Stream(MULTIPLY, r, m, m, n, unit), Stream(ADD, own, m, own, n))
        phases: tuple[Phase, ...] = (Phase(sums, (*opened, *reset, *closed)),)
    else:
        # Both biases: their sum may need more than 32 bits.
        phases = (
            Phase((both,), (*opened, Stream(MULTIPLY, r, h, m, n, unit))),
            Phase((Sums(n, own, True, m, 2),), closed),
        )
    return Cell(phases, (h,), places.end)


def gru_gates(layer: FixedGru) -> list[list[Gates]]:
    split = 2 * layer.hidden_weight.shape[1]
    both = Gates(layer.input_weight[:split], layer.hidden_weight[:split], (layer.bias[:split],))
    x, h = layer.input_weight[split:], layer.hidden_weight[split:]
    if layer.linear_before_reset:
        return [[
            both, Gates(x, None, (layer.bias[split:],)), Gates(None, h, (layer.hidden_bias,))
        ]]  # fmt: skip
    return [[both], [Gates(x, h, (layer.bias[split:], layer.hidden_bias))]]


def cell_shape(layer: FixedLstm | FixedGru, steps: int) -> RecurrentShape:
    """What is asked about a layer that runs for ``steps`` time steps."""
    if isinstance(layer, FixedLstm):
        cell, tables = lstm_cell(layer), (layer.sigmoid, layer.tanh, layer.cell_tanh)
    else:
        cell, tables = gru_cell(layer), (layer.sigmoid, layer.complement, layer.tanh)
    inputs, hidden = layer.input_weight.shape[1], layer.hidden_weight.shape[1]
    return RecurrentShape(
        steps, inputs, hidden, tuple(map(_phase_shape, cell.phases)),
        cell.words - 2 * line(inputs), tuple(len(table.values) for table in tables),
    )  # fmt: skip


def _phase_shape(phase: Phase) -> PhaseShape:
    sums = tuple(
        SumShape(one.rows, one.takes_input, one.state is not None, one.biases)
        for one in phase.sums
    )
    looked_up = sum(one.words for one in phase.streams if one.table is not None)
    return PhaseShape(
        sums, sum(one.words for one in phase.streams), looked_up, len(phase.streams)
    )
