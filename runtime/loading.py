"""From a program file to what a simulator loads, whatever the kind of machine."""

from __future__ import annotations

import numpy as np

from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.program.parts import WORD_BYTES, CodeRange, Image, Segment
from tvm_npu.sim.image import CodeImage, MemoryRange, ProgramImage


def program_image(program: Program, image: Image) -> ProgramImage:
    """``program``, placed as ``image`` says."""

    def range_of(segment: Segment) -> MemoryRange:
        return MemoryRange(image.addresses[segment], program.segments[segment].size_bytes)

    debug = program.debug

    def code(part: CodeRange) -> CodeImage:
        rows = slice(part.begin // WORD_BYTES, part.end // WORD_BYTES)
        address = image.addresses[Segment.CODE] + part.begin
        return CodeImage(
            words=image.code[rows],
            address=address,
            entry_address=address,
            layer_of=debug["layer"][rows].astype(np.int32),
            stream_of=debug["stream"][rows].astype(np.int8),
            tile_registers=tuple(program.scopes[int(scope)] for scope in debug["scope"][rows]),
        )

    constants = np.frombuffer(image.constants, np.uint8)
    return ProgramImage(
        name=program.name,
        codes=tuple(map(code, program.images)),
        constants=range_of(Segment.CONSTANTS),
        activations=range_of(Segment.ACTIVATIONS),
        content={image.addresses[Segment.CONSTANTS]: constants},
        parameter_address=image.parameter_address,
        end_address=image.end_address,
        layer_names=tuple(layer.name for layer in program.layers),
        layer_precisions=tuple(layer.precision for layer in program.layers),
        precision=program.precision,
        states=range_of(Segment.STATES),
    )
