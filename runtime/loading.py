"""From a program file to what a simulator loads, whatever the kind of machine."""

from __future__ import annotations

from typing import cast

import numpy as np

from tvm_npu.codegen.program.format import Image, Program, Segment
from tvm_npu.sim.image import CodeImage, MemoryRange, ProgramImage
from tvm_npu.sim.machine_parts import Precision


def program_image(program: Program, image: Image) -> ProgramImage:
    """``program``, placed as ``image`` says."""

    def range_of(segment: Segment) -> MemoryRange:
        return MemoryRange(image.addresses[segment], program.segments[segment].size_bytes)

    debug = program.debug
    precision = cast(Precision, program.precision)
    code = CodeImage(
        words=image.code,
        address=image.addresses[Segment.CODE],
        entry_address=image.entry_address,
        layer_of=debug["layer"].astype(np.int32),
        stream_of=debug["stream"].astype(np.int8),
        tile_registers=tuple(program.scopes[int(scope)] for scope in debug["scope"]),
    )
    constants = np.frombuffer(image.constants, np.uint8)
    return ProgramImage(
        name=program.name,
        codes=(code,),
        constants=range_of(Segment.CONSTANTS),
        activations=range_of(Segment.ACTIVATIONS),
        content={image.addresses[Segment.CONSTANTS]: constants},
        parameter_address=image.parameter_address,
        end_address=image.end_address,
        layer_names=tuple(layer.name for layer in program.layers),
        layer_precisions=(precision,) * len(program.layers),
        precision=precision,
    )
