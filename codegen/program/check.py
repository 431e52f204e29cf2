"""Consistency of a program's parts, checked before it is written and after it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_npu.codegen.errors import ProgramError
from tvm_npu.codegen.program.parts import (
    SEGMENTS,
    WORD_BYTES,
    Segment,
)
from tvm_npu.sim.errors import MachineError
from tvm_npu.sim.kinds import machine_kind
from tvm_npu.sim.machine_parts import ELEMENT_BYTES
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.texts import shown

if TYPE_CHECKING:
    from tvm_npu.codegen.program.format import Program
    from tvm_npu.sim.description import MachineDescription


MOST_READINGS = 8
"""Of a program's memory by its outputs in a run of one image."""


def require(condition: bool, what: str, found: object, expected: object) -> None:
    """Products of a file's numbers may have more digits than Python makes text of."""
    if not condition:
        found, expected = (shown(one) if isinstance(one, int) else one for one in (found, expected))
        raise ProgramError(f"program file: {what} is {found}, expected {expected}")


def check(program: Program) -> None:
    """Raises ProgramError when the parts of a program contradict each other."""
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
    _check_slots(program, machine)
    _check_results(program)
    _check_images(program, sizes[Segment.CODE])
    _check_plans(program)
    _check_tables(program, constants)
    _check_records(program, sizes)
    kind = machine_kind(machine.isa)
    for image in program.images:
        words = program.code[image.begin // WORD_BYTES : image.end // WORD_BYTES]
        fault = kind.code_fault(words, machine)
        if fault is not None:
            require(False, fault.what, fault.found, fault.expected)
    if not kind.holds_addresses:
        records = len(program.relocations)
        require(records == 0, f"relocations for isa {machine.isa!r}", records, 0)


def _check_slots(program: Program, machine: MachineDescription) -> None:
    types = {layer.precision for layer in program.layers} or {program.precision}
    require(program.precision in types, "precision", program.precision, f"one of {sorted(types)}")
    for segment in (Segment.ACTIVATIONS, Segment.STATES):
        size = program.segments[segment].size_bytes
        require(
            size % (program.batch * WORD_BYTES) == 0 or program.batch == 1,
            f"size of segment {segment.value}", size,
            f"a multiple of {WORD_BYTES} for each of {program.batch} images",
        )  # fmt: skip
    for slot in (*program.inputs, *program.outputs, *program.intermediates, *program.states):
        name = f"tensor {slot.name!r}"
        end = slot.offset + slot.size_bytes
        room = program.share_bytes(slot.segment)
        require(end <= room, f"end of {name}", end, f"at most {room}")
        require(
            slot.offset % slot.stored_bytes == 0,
            f"offset of {name}", slot.offset, f"a multiple of {slot.stored_bytes}",
        )  # fmt: skip
        require(
            slot.element_type in types,
            f"element type of {name}", slot.element_type, f"one of {sorted(types)}",
        )  # fmt: skip
        stored_bytes = machine.stored_element_bytes(slot.element_type)
        require(
            slot.stored_bytes == stored_bytes,
            f"stored size of an element of {name}", slot.stored_bytes, stored_bytes,
        )  # fmt: skip
        count = prod(slot.shape)
        whole = count % slot.planes == 0 if slot.planes else slot.pitch == 0
        require(whole, f"planes of {name}", slot.planes, f"0, or a divisor of {shown(count)}")
        require(
            slot.pitch >= slot.planes, f"pitch of {name}", slot.pitch, f"at least {slot.planes}"
        )
        channels = slot.scale.channels
        require(
            channels in (None, slot.shape[0] if slot.shape else None),
            f"number of channels in the scale of {name}", channels, slot.shape[:1],
        )  # fmt: skip
    for slot in program.inputs:
        require(
            slot.pitch == slot.planes, f"pitch of input {slot.name!r}", slot.pitch, slot.planes
        )
    for slot in program.states:
        require(
            slot.segment is Segment.STATES, f"segment of state {slot.name!r}", slot.segment.value,
            Segment.STATES.value,
        )  # fmt: skip


def _check_results(program: Program) -> None:
    """Outputs may lie on the same bytes, as parts of each other do, but each is read out."""
    results = sum(prod(slot.shape) * slot.stored_bytes for slot in program.outputs)
    most = MOST_READINGS * sum(size.size_bytes for size in program.segments.values())
    require(
        results <= most, "size of all outputs", results,
        f"at most {most}, {MOST_READINGS} times the program's memory",
    )  # fmt: skip


def _check_images(program: Program, code_bytes: int) -> None:
    """Images follow each other without gaps; each layer has its part of every one."""
    position = 0
    for number, image in enumerate(program.images):
        whole = image.begin == position < image.end and image.end % WORD_BYTES == 0
        require(
            whole, f"code image {number}", (image.begin, image.end),
            f"whole instructions from {position} on",
        )  # fmt: skip
        position = image.end
    require(position == code_bytes, "end of the last code image", position, code_bytes)
    for layer in program.layers:
        name = f"code of layer {layer.name!r}"
        require(len(layer.code) == len(program.images), f"number of images in the {name}",
                len(layer.code), len(program.images))  # fmt: skip
        for code, image in zip(layer.code, program.images, strict=True):
            inside = image.begin <= code.begin <= code.end <= image.end
            aligned = code.begin % WORD_BYTES == code.end % WORD_BYTES == 0
            require(
                inside and aligned, name, (code.begin, code.end),
                f"whole instructions within bytes {image.begin} to {image.end}",
            )  # fmt: skip


def _check_plans(program: Program) -> None:
    """JSON has no NaN and no infinity."""
    for layer in program.layers:
        odd = [one for one in _floats(layer.plan) if not isfinite(one)]
        require(not odd, f"a number in the plan of layer {layer.name!r}", odd[:1], "finite")


def _floats(values: Any) -> Iterator[float]:
    """Those anywhere in lists and objects."""
    left = [values]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
        elif isinstance(one, float):
            yield one


def _check_tables(program: Program, constant_bytes: int) -> None:
    for table in program.tables:
        end = table.offset + table.size_bytes
        name = f"lookup table {table.name!r}"
        require(end <= constant_bytes, f"end of {name}", end, f"at most {constant_bytes}")
        unit = ELEMENT_BYTES[table.element_type]
        require(
            table.offset % unit == 0, f"offset of {name}", table.offset, f"a multiple of {unit}"
        )


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
    scope = int(debug["scope"].max()) if len(debug) else -1
    require(
        scope < len(program.scopes), "a scope in the debug map", scope,
        f"< {len(program.scopes)}",
    )  # fmt: skip
    stream = int(debug["stream"].max(initial=0))
    require(stream < len(Stream), "a stream in the debug map", stream, f"< {len(Stream)}")
