"""A planned region -> code of an NMP: command trees, one code image for all cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.backend import PlannedGraph
from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.graph import FixedLayer, Requantized, Shape
from tvm_npu.codegen.nmp.emit.block import block
from tvm_npu.codegen.nmp.emit.broadcast import broadcast
from tvm_npu.codegen.nmp.emit.commands import Assign
from tvm_npu.codegen.nmp.emit.conv_sums import conv_sum
from tvm_npu.codegen.nmp.emit.conventions import (
    CORE,
    PENDING_STORES,
    TLT,
    barrier,
    wait_store,
)
from tvm_npu.codegen.nmp.emit.convolution import convolution
from tvm_npu.codegen.nmp.emit.elementwise import elementwise
from tvm_npu.codegen.nmp.emit.expressions import Expression
from tvm_npu.codegen.nmp.emit.layer import ConstantsPlace, LayerCode, Operands
from tvm_npu.codegen.nmp.emit.listing import listing
from tvm_npu.codegen.nmp.emit.lower import Lowered, Lowering
from tvm_npu.codegen.nmp.emit.move import move_layer
from tvm_npu.codegen.nmp.emit.parameters import Location
from tvm_npu.codegen.nmp.emit.registers import CORE_REGISTER, RegisterPressureError
from tvm_npu.codegen.nmp.emit.spilling import spilled
from tvm_npu.codegen.nmp.emit.weights import (
    arranged,
    bias_words,
    biases_of_pairs,
    in_rounds,
    scale_words,
)
from tvm_npu.codegen.nmp.emit.windows import window
from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem, crew_size
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.conv_sum import SumProblem
from tvm_npu.codegen.nmp.plan.move import MovePlan, MoveProblem
from tvm_npu.codegen.nmp.plan.sequence import early_engine_cycles
from tvm_npu.codegen.nmp.plan.tables import constant_bytes, table_bytes
from tvm_npu.codegen.nmp.plan.window import (
    FlatPlan,
    FlatProblem,
    WindowPlan,
    WindowProblem,
)
from tvm_npu.codegen.ops import (
    FixedBlock,
    FixedBroadcast,
    FixedCascade,
    FixedConv,
    FixedConvSum,
    FixedElementwise,
    FixedMaxFeatureMap,
    FixedMaximum,
    FixedMove,
    FixedPad,
    FixedPool,
    FixedTable,
)
from tvm_npu.codegen.passes.storage import Storage
from tvm_npu.codegen.plan.layers import PlannedLayer
from tvm_npu.codegen.plan.problem import ConvProblem, MeasuredPrediction
from tvm_npu.codegen.program.code import Code
from tvm_npu.codegen.program.constants import Constants
from tvm_npu.codegen.program.format import (
    DEBUG,
    RELOCATION,
    SEGMENTS,
    WORD_BYTES,
    CodeRange,
    Segment,
)
from tvm_npu.sim.errors import OutOfReachError
from tvm_npu.sim.nmp.machine import NmpMachine

MOST_LINE_WORDS = 511
"""Words of a core's line that one layer can reach with the 12-bit offset of lw."""
LINES_IN_FRONT, LINES_IN_FRONT_RING, LINES_IN_FRONT_AHEAD = 2, 1, 4
"""Of the instruction cache, that a core waits for before its engine has anything to do: with one
buffer, or where IN tiles stay; where IN tiles come over the ring; with two buffers, where loads of
two steps are in front of products. By simulation of many layers."""


_STORED: dict[int, np.dtype[Any]] = {1: np.dtype("<i1"), 2: np.dtype("<i2")}
"""Elements as they lie in memory, by their bytes."""


@dataclass(frozen=True)
class NmpRegion:
    """A region at the command level (`backend.Emitted`)."""

    planned: PlannedGraph
    machine: NmpMachine
    codes: tuple[LayerCode, ...]
    constants: bytearray
    """With the parameter table at ``parameter_offset``; ``relocations`` are of its words."""
    parameter_offset: int
    relocations: NDArray[Any]

    def text(self, layer: int) -> str:
        code = self.codes[layer]
        text = f"  words: {' '.join(variable.name for variable in code.parameters.variables)}\n"
        if code.early:
            text += f"  early:\n{listing(code.early, '    ')}"
        return text + listing(code.nodes, "  ")

    def assemble(self) -> Code:
        codes, lowered, ranges = _lowered(self.planned, self.machine, self.codes)
        region = self if codes is self.codes else self.with_codes(codes)
        return Code(
            words=lowered.words,
            layers=tuple((CodeRange(*one),) for one in ranges),
            constants=region.constants,
            activation_bytes=self.planned.storage.size_bytes,
            debug=np.array(list(lowered.debug), DEBUG),
            parameter_offset=self.parameter_offset,
            scopes=tuple(dict(scope) for scope in lowered.scopes),
            relocations=region.relocations,
            start_cycles=tuple(
                0.0
                if _is_measured(one.plan)
                else _start_cycles(one, code, own, self.machine)
                for one, code, own in zip(self.planned.layers, region.codes, ranges, strict=True)
            ),
        )

    def with_codes(self, codes: tuple[LayerCode, ...]) -> NmpRegion:
        """With other ``codes`` of its layers, and the parameter table that they need."""
        table, relocations = _parameter_table(codes, self.machine, self.parameter_offset)
        constants = self.constants[: self.parameter_offset] + table
        return replace(self, codes=codes, constants=constants, relocations=relocations)


def emit(planned: PlannedGraph, machine: NmpMachine) -> NmpRegion:
    """The region's layers as their plans say. EmitError for plans that the machine cannot run."""
    constants = _Constants()
    codes = []
    for one in planned.layers:
        if isinstance(one.problem, ConvProblem) and not isinstance(one.plan, ConvPlan):
            raise EmitError(
                f"layer {one.layer.name!r}: planner {planned.planner!r} answers with a "
                f"{type(one.plan).__name__}; machine {machine.name!r} takes a ConvPlan"
            )
        operands = constants.operands(one, planned.storage, machine)
        codes.append(_code(one, planned.storage.shapes, machine, operands))
    offset = constants.constants.pad()
    table, relocations = _parameter_table(codes, machine, offset)
    data = constants.constants.data
    data.extend(table)
    return NmpRegion(planned, machine, tuple(codes), data, offset, relocations)


def _code(
    one: PlannedLayer, shapes: dict[str, Shape], machine: NmpMachine, operands: Operands
) -> LayerCode:
    layer, problem, plan = one.layer, one.problem, one.plan
    if isinstance(layer, FixedBlock):
        assert isinstance(problem, BlockProblem) and isinstance(plan, BlockPlan)
        return block(layer, problem, plan, machine, operands)
    if isinstance(layer, FixedConvSum):
        assert isinstance(problem, SumProblem) and isinstance(plan, ConvPlan)
        return conv_sum(layer, problem, plan, machine, operands)
    if isinstance(layer, FixedConv | FixedCascade):
        assert isinstance(problem, ConvProblem) and isinstance(plan, ConvPlan)
        return convolution(layer, problem, plan, machine, operands)
    if isinstance(layer, FixedBroadcast):
        assert isinstance(problem, WindowProblem) and isinstance(plan, WindowPlan)
        return broadcast(layer, shapes[layer.output], problem, plan, machine, operands)
    if isinstance(layer, FixedElementwise | FixedMaximum | FixedMaxFeatureMap | FixedTable):
        assert isinstance(problem, FlatProblem) and isinstance(plan, FlatPlan)
        return elementwise(layer, problem, plan, machine, operands)
    if isinstance(layer, FixedMove):
        assert isinstance(problem, MoveProblem) and isinstance(plan, MovePlan)
        return move_layer(layer, problem, plan, machine, operands)
    assert isinstance(layer, FixedPool | FixedPad)
    assert isinstance(problem, WindowProblem) and isinstance(plan, WindowPlan)
    in_shape, out_shape = shapes[layer.inputs[0]], shapes[layer.output]
    return window(layer, in_shape, out_shape, problem, plan, machine, operands)


def _is_measured(plan: Any) -> bool:
    return isinstance(plan, ConvPlan) and isinstance(plan.prediction, MeasuredPrediction)


def _start_cycles(
    one: PlannedLayer, code: LayerCode, between: tuple[int, int], machine: NmpMachine
) -> float:
    """What a core waits for at a layer beside its work: the layer's words, and the code up to its
    first loads, at ``between`` (begin, end) in words of the program, which no TLE has in its cache:
    a line that a layer shares with the one before it is there. Later lines come while the engine
    works, most of them for the first TLT that wants them, and are there for the others. All of
    that comes beside what a layer loads early, but for one with a window at its end, which is
    walked from its first loads on (`plan.few_steps`)."""
    cores, (begin, end) = machine.cores, between
    line_bytes = cores.instruction_line_bytes
    ends_in_window = isinstance(one.problem, ConvProblem) and one.problem.window is not None
    in_front = LINES_IN_FRONT if ends_in_window else _lines_in_front(one.plan)
    lines = min(in_front, (end - 1) // line_bytes - (begin - 1) // line_bytes)
    words = len(code.parameters.variables)
    start = words * cores.scalar_memory_cycles + lines * cores.instruction_miss_cycles
    if not code.early or ends_in_window:
        return start
    return max(0.0, start - early_engine_cycles(one, machine))


def _lines_in_front(plan: Any) -> int:
    if isinstance(plan, BlockPlan):
        plan = plan.head
    if not isinstance(plan, ConvPlan):
        return LINES_IN_FRONT
    if plan.buffers == 2:
        return LINES_IN_FRONT if plan.keeps_in else LINES_IN_FRONT_AHEAD
    return LINES_IN_FRONT_RING if plan.ring_in else LINES_IN_FRONT


class _Constants:
    """Weights and biases, one after another, aligned."""

    def __init__(self) -> None:
        self.constants = Constants()
        self._tables: dict[bytes, Location] = {}

    def add(self, values: Any, dtype: np.dtype[Any], what: str) -> Location:
        return Location(Segment.CONSTANTS, self.constants.add(values, dtype, what))

    def operands(self, one: PlannedLayer, storage: Storage, machine: NmpMachine) -> Operands:
        def at(tensor: str) -> Location:
            return Location(Segment.ACTIVATIONS, storage.offsets[tensor])

        layer, size = one.layer, one.problem.element_bytes
        inputs = tuple(at(tensor) for tensor in layer.inputs)
        operands = Operands(inputs, at(layer.output))
        head, problem, plan = layer, one.problem, one.plan
        twin: FixedConv | None = None
        members = 1
        if isinstance(layer, FixedBlock):
            assert isinstance(plan, BlockPlan)
            values = in_rounds(_twin_last(layer), problem, plan, machine)
            twin, members = layer.twin, crew_size(plan, machine)
            head, problem, plan = layer.head, problem.head, plan.head
            weight, bias = self._weights(layer.point, values, size)
            operands = replace(operands, point_weight=weight, point_bias=bias)
        if isinstance(layer, FixedConvSum):
            assert isinstance(problem, SumProblem) and isinstance(plan, ConvPlan)
            values = np.concatenate([layer.first.weight, layer.second.weight], axis=1)
            values = arranged(values, plan, problem.whole, machine)
            weight, bias = self._weights(layer.first, values, size)
            second = self._biases(layer.second)
            return replace(operands, weight=weight, bias=bias, point_bias=second)
        conv = head.conv if isinstance(head, FixedCascade) else head
        if isinstance(conv, FixedConv):
            assert isinstance(problem, ConvProblem) and isinstance(plan, ConvPlan)
            biases, beside = bias_words(conv), None
            if twin is not None:
                biases = biases_of_pairs(biases, bias_words(twin), members)
                beside = twin.weight
            values = arranged(conv.weight, plan, problem, machine, beside)
            weight, bias = self._weights(conv, values, size, biases)
            operands = replace(operands, weight=weight, bias=bias)
        if isinstance(head, FixedCascade) and isinstance(head.window, FixedConv):
            weight, bias = self._weights(head.window, head.window.weight, size)
            operands = replace(operands, window_weight=weight, window_bias=bias)
        return replace(operands, table=self._table(layer, size))

    def _table(self, layer: FixedLayer, size: int) -> ConstantsPlace | None:
        """Where the values of a table, slopes or scale words of channels lie; equal ones lie there
        once."""
        if isinstance(layer, FixedTable):
            return self._once(layer.table.values, _STORED[size], table_bytes(size))
        if not isinstance(layer, Requantized):
            return None
        needed = constant_bytes(layer, size)
        if needed is None:
            return None
        if layer.table is not None:
            return self._once(layer.table.values, _STORED[size], needed)
        if layer.rescaling is not None:
            return self._once(scale_words(layer.rescaling), np.dtype("<i4"), needed)
        return self._once(layer.slopes, np.dtype("<i4"), needed)

    def _once(self, values: Any, dtype: np.dtype[Any], size_bytes: int) -> ConstantsPlace:
        key = values.astype(dtype).tobytes()
        if key not in self._tables:
            padded = np.zeros(size_bytes // dtype.itemsize, dtype)
            padded[: len(values)] = values
            self._tables[key] = self.add(padded, dtype, "a table, slopes or scale words")
        return ConstantsPlace(self._tables[key], size_bytes)

    def _weights(
        self, conv: FixedConv, values: Any, size: int, biases: NDArray[Any] | None = None
    ) -> tuple[Location, Location]:
        """``biases``: what lies in the place of the convolution's own."""
        name = f"layer {conv.name!r}"
        weight = self.add(values, _STORED[size], f"{name}, weights")
        if biases is None:
            return weight, self._biases(conv)
        return weight, self.add(biases, np.dtype("<i4"), f"{name}, biases")

    def _biases(self, conv: FixedConv) -> Location:
        return self.add(bias_words(conv), np.dtype("<i4"), f"layer {conv.name!r}, biases")


def _twin_last(layer: FixedBlock) -> NDArray[Any]:
    """The weights of the pointwise convolution, channels that a twin makes behind the others."""
    weight = layer.point.weight
    if layer.twin is None or not layer.twin_leads:
        return weight
    return np.roll(weight, -len(layer.twin.weight), axis=1)


def _lowered(
    planned: PlannedGraph, machine: NmpMachine, codes: tuple[LayerCode, ...]
) -> tuple[tuple[LayerCode, ...], Lowered, list[tuple[int, int]]]:
    """`_lower` of ``codes`` or, where registers do not suffice, of ones with variables in memory,
    which come first. EmitError where that does not help."""
    far: frozenset[str] = frozenset()
    while True:
        try:
            return codes, *_lower(planned, machine, codes, far)
        except RegisterPressureError as error:
            code = spilled(codes[error.layer], error.held)
            if code is None:
                raise EmitError(str(error)) from None
            codes = (*codes[: error.layer], code, *codes[error.layer + 1 :])
        except OutOfReachError as error:
            if error.labels <= far:
                raise EmitError(f"more code than jumps can cross: {error}") from None
            far |= error.labels


def _lower(
    planned: PlannedGraph, machine: NmpMachine, codes: tuple[LayerCode, ...], far: frozenset[str]
) -> tuple[Lowered, list[tuple[int, int]]]:
    """The code image, and the byte range of every layer in it; ``far`` as for `Lowering`."""
    lowering = Lowering(far)
    lowering.keep_one()
    lowering.registers.bind(CORE, CORE_REGISTER)
    tlts, cores = machine.cores.tlts_per_tle, machine.core_count
    tlt = lowering.registers.bind(TLT)
    lowering.builder.li(tlt, tlts)
    lowering.builder.emit("remu", rd=tlt, rs1=CORE_REGISTER, rs2=tlt)
    line_words = sum(len(code.parameters.variables) for code in codes)
    lowering.find_line(line_words)
    lowering.registers.bind(PENDING_STORES)
    lowering.run((Assign(PENDING_STORES, Expression()),))
    ranges = []
    for index, (one, code) in enumerate(zip(planned.layers, codes, strict=True)):
        words = code.parameters.variables
        if len(words) > MOST_LINE_WORDS:
            raise EmitError(f"layer {one.layer.name!r} needs {len(words)} words a core")
        lowering.begin_layer(index)
        if index == 0:
            lowering.run_early(tuple(words), code.early)
        begin = lowering.builder.position
        lowering.run_layer(tuple(words), code.nodes)
        if index + 1 < len(codes):
            following = codes[index + 1]
            lowering.begin_layer(index + 1)
            lowering.run_early(tuple(following.parameters.variables), following.early)
            lowering.begin_layer(index)
            lowering.run(barrier(cores))
        ranges.append((begin, lowering.builder.position))
    lowering.begin_layer(-1)
    lowering.run(wait_store())
    lowering.exit()
    return lowering.finish(), ranges


def _parameter_table(
    codes: Sequence[LayerCode], machine: NmpMachine, offset: int
) -> tuple[bytes, NDArray[Any]]:
    """The words that cores read, at ``offset`` of the constants, and their relocations."""
    columns = [words for code in codes for words in code.parameters.words]
    table = np.zeros((machine.core_count, len(columns)), np.uint32)
    records = []
    number = {segment: index for index, segment in enumerate(SEGMENTS)}
    for core in range(machine.core_count):
        for column, words in enumerate(columns):
            word = words[core]
            if isinstance(word, Location):
                place = offset + WORD_BYTES * (core * len(columns) + column)
                records.append((number[Segment.CONSTANTS], place, number[word.segment]))
                word = word.offset
            table[core, column] = word & 0xFFFF_FFFF
    return table.astype("<u4").tobytes(), np.array(records, RELOCATION)
