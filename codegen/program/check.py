"""Consistency of a program's parts, checked before it is written and after it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from tvm_npu.codegen.errors import ProgramError
from tvm_npu.codegen.program.parts import (
    SEGMENTS,
    WORD_BYTES,
    Segment,
)
from tvm_npu.sim.errors import MachineError
from tvm_npu.sim.kinds import machine_kind
from tvm_npu.sim.machine_parts import ELEMENT_BYTES, Precision
from tvm_npu.sim.streams import Stream

if TYPE_CHECKING:
    from tvm_npu.codegen.program.format import Program


def require(condition: bool, what: str, found: object, expected: object) -> None:
    if not condition:
        raise ProgramError(f"program file: {what} is {found}, expected {expected}")


def check(program: Program) -> None:
    """ProgramError when the parts of a program contradict each other."""
    segments = program.segments
    require(set(segments) == set(SEGMENTS), "set of segments", sorted(segments), list(SEGMENTS))
    try:
        machine = program.machine_description()
    except MachineError as error:
        raise ProgramError(f"program file: {error}") from error
    sizes = {
        Segment.CODE: WORD_BYTES * len(program.code),
        Segment.CONSTANTS: len(program.constants),
    }
    for segment, actual in sizes.items():
        declared = segments[segment].size_bytes
        require(declared == actual, f"size of segment {segment.value}", declared, actual)
    constants = sizes[Segment.CONSTANTS]
    require(constants % WORD_BYTES == 0, "size of the constants", constants, "a multiple of 4")
    limit = machine.dram.capacity_bytes
    total = sum(size.size_bytes for size in segments.values())
    require(total <= limit, "memory of all segments", total, f"at most {limit}")
    require(
        program.parameter_offset <= constants and program.parameter_offset % WORD_BYTES == 0,
        "offset of the parameters", program.parameter_offset, f"a multiple of 4 up to {constants}",
    )  # fmt: skip
    precision: Precision = "int16" if program.precision == "int16" else "int8"
    element_bytes = ELEMENT_BYTES[precision]
    stored_bytes = machine.stored_element_bytes(precision)
    for slot in (*program.inputs, *program.outputs, *program.intermediates):
        end = slot.offset + slot.size_bytes
        room = segments[slot.segment].size_bytes
        require(end <= room, f"end of tensor {slot.name!r}", end, f"at most {room}")
        require(
            slot.offset % slot.stored_bytes == 0,
            f"offset of tensor {slot.name!r}", slot.offset, f"a multiple of {slot.stored_bytes}",
        )  # fmt: skip
        require(
            slot.element_bytes == element_bytes,
            f"element size of tensor {slot.name!r}", slot.element_bytes, element_bytes,
        )  # fmt: skip
        require(
            slot.stored_bytes == stored_bytes,
            f"stored size of an element of tensor {slot.name!r}", slot.stored_bytes, stored_bytes,
        )  # fmt: skip
    for layer in program.layers:
        code = (layer.code_begin, layer.code_end)
        inside = layer.code_begin <= layer.code_end <= sizes[Segment.CODE]
        aligned = code[0] % WORD_BYTES == code[1] % WORD_BYTES == 0
        require(
            inside and aligned, f"code of layer {layer.name!r}", code,
            f"whole instructions within {sizes[Segment.CODE]} bytes",
        )  # fmt: skip
    _check_records(program, sizes)
    kind = machine_kind(machine.isa)
    fault = kind.code_fault(program.code, machine)
    if fault is not None:
        require(False, fault.what, fault.found, fault.expected)
    if not kind.holds_addresses:
        records = len(program.relocations)
        require(records == 0, f"relocations for isa {machine.isa!r}", records, 0)


def _check_records(program: Program, sizes: Mapping[Segment, int]) -> None:
    relocations, debug = program.relocations, program.debug
    for name in ("segment", "target"):
        worst = int(relocations[name].max(initial=0))
        require(worst < len(SEGMENTS), f"{name} of a relocation", worst, f"< {len(SEGMENTS)}")
    for number, segment in enumerate(SEGMENTS):
        offsets = relocations["offset"][relocations["segment"] == number].astype(np.int64)
        room = sizes.get(segment, 0)
        worst = int(offsets.max(initial=-WORD_BYTES))
        require(
            worst + WORD_BYTES <= room, f"offset of a relocation in {segment.value}", worst,
            f"below {room}",
        )  # fmt: skip
        require(
            not (offsets % WORD_BYTES).any(), f"a relocation in {segment.value}", "misaligned",
            "a multiple of 4",
        )  # fmt: skip
    require(len(debug) == len(program.code), "length of the debug map", len(debug),
             len(program.code))  # fmt: skip
    layer = int(debug["layer"].max(initial=-1)), int(debug["layer"].min(initial=-1))
    require(
        layer[0] < len(program.layers) and layer[1] >= -1, "layers in the debug map", layer,
        f"-1 .. {len(program.layers) - 1}",
    )  # fmt: skip
    scope = int(debug["scope"].max(initial=0))
    require(
        scope < max(1, len(program.scopes)), "a scope in the debug map", scope,
        f"< {len(program.scopes)}",
    )  # fmt: skip
    stream = int(debug["stream"].max(initial=0))
    require(stream < len(Stream), "a stream in the debug map", stream, f"< {len(Stream)}")
