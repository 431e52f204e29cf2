"""What a program consists of: tensors, segments, layers, and the formats of its sections."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, WrapSerializer

from tvm_npu.codegen.graph.scale import Scale
from tvm_npu.sim.machine_parts import ELEMENT_BYTES, Precision
from tvm_npu.sim.streams import Stream

MAGIC = b"TVMNPUP\n"
FORMAT_VERSION = 2
PROLOGUE = struct.Struct("<8sIIQ32s")
"""Magic, format version, header bytes, total bytes, SHA-256 of the header."""
LARGEST_HEADER_BYTES = 1 << 24
MOST_HEADER_VALUES = 1 << 19
"""A layer has about a hundred, and two a channel where channels have scales of their own."""
LONGEST_LOOP_NAME = 64
MOST_LOOPS = 32
"""Of a scope: as many as there are registers."""
MOST_EXTENTS = 16
"""Of a tensor: their product is computed before anything is known of it."""
SECTIONS = ("code", "constants", "relocations", "debug")
WORD_BYTES = 4


class Segment(str, Enum):
    """Parts of a program that get a DRAM address of their own when it is loaded."""

    CODE = "code"
    CONSTANTS = "constants"
    ACTIVATIONS = "activations"
    STATES = "states"
    """What layers keep from step to step; all zeros when a run begins."""


SEGMENTS = tuple(Segment)
"""In the order in which they are placed and numbered in the relocation section."""

RELOCATION = np.dtype([("segment", "<u4"), ("offset", "<u4"), ("target", "<u4")])
DEBUG = np.dtype([("layer", "<i2"), ("stream", "<u2"), ("scope", "<u4")])

STORED_TYPE: dict[int, np.dtype[Any]] = {size: np.dtype(f"<i{size}") for size in (1, 2, 4)}
"""By bytes of a stored element: sign-extended, little-endian."""

Count = Annotated[int, Field(ge=0, le=1 << 40)]
Text = Annotated[str, Field(max_length=1 << 16)]


def _as_older_files(scale: Scale, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
    """A scale without what files had not before halves could go elsewhere than up."""
    values: dict[str, Any] = dump(scale)
    if values["halves"] == "up":
        del values["halves"]
    return values


def as_batch(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """``array`` as [B, *shape]. That is what it is, except for a sequence or a state of one image,
    which frameworks give with extents of 1 elsewhere: [T, 1, N] for (T, N). Others are returned as
    they are."""
    if array.shape[1:] == shape or _without_ones(array.shape) != _without_ones(shape):
        return array
    return array.reshape(1, *shape)


def as_batches(
    arrays: Sequence[Any], names: Sequence[str], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, NDArray[Any]]:
    """What a region is called with, by the ``names`` of its inputs, each `as_batch`."""
    return {
        name: as_batch(np.asarray(array), shapes[name])
        for name, array in zip(names, arrays, strict=True)
    }


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(extent for extent in shape if extent != 1)


@dataclass(frozen=True)
class TensorSlot:
    """A tensor in memory: batch-free shape, what its integers mean, and its place. An element is
    of ``element_type``; it lies, sign-extended, in ``stored_bytes`` (left out: as many as the type
    has). Elements lie as the shape says, or (``planes`` > 0) pixel by pixel: ``planes`` channels
    beside each other, and from one pixel to the next ``pitch`` elements. ``source`` is what the
    model calls the maker of an input, where that is known."""

    name: Text
    shape: Annotated[
        tuple[Annotated[int, Field(ge=1, le=1 << 32)], ...],
        Field(min_length=1, max_length=MOST_EXTENTS),
    ]
    scale: Annotated[Scale, WrapSerializer(_as_older_files)]
    element_type: Precision
    segment: Segment
    offset: Count
    stored_bytes: Literal[0, 1, 2, 4] = 0
    planes: Count = 0
    pitch: Count = 0
    source: Text = ""

    def __post_init__(self) -> None:
        if not self.stored_bytes:
            object.__setattr__(self, "stored_bytes", self.element_bytes)

    @property
    def element_bytes(self) -> Literal[1, 2]:
        return ELEMENT_BYTES[self.element_type]

    @property
    def q_point(self) -> int:
        """QuantizationError for a scale that no Q-point says."""
        return self.scale.q_point

    @property
    def size_bytes(self) -> int:
        """From the first byte of the first element to the last of the last one."""
        count = prod(self.shape)
        if self.planes:
            count = (count // self.planes - 1) * self.pitch + self.planes
        return count * self.stored_bytes

    def view(self, memory: NDArray[np.uint8], begin: int) -> NDArray[Any]:
        """The elements as ``planes`` x pixels, or as the shape says; ``begin`` is the slot's first
        byte in ``memory``."""
        stored = memory[begin : begin + self.size_bytes].view(STORED_TYPE[self.stored_bytes])
        if not self.planes:
            return stored.reshape(self.shape)
        pixels = prod(self.shape) // self.planes
        steps = (stored.itemsize, self.pitch * stored.itemsize)
        return np.lib.stride_tricks.as_strided(stored, (self.planes, pixels), steps)


@dataclass(frozen=True)
class LookupTable:
    """A function's values in the constants: ``entries`` elements, for inputs in rising order."""

    name: Text
    function: Text
    element_type: Precision
    entries: Annotated[int, Field(ge=1, le=1 << 24)]
    offset: Count

    @property
    def size_bytes(self) -> int:
        return self.entries * ELEMENT_BYTES[self.element_type]


@dataclass(frozen=True)
class SegmentSize:
    size_bytes: Count
    alignment_bytes: Annotated[int, Field(ge=1, le=1 << 20)]


@dataclass(frozen=True)
class CodeRange:
    """Bytes ``begin`` to ``end`` of the code segment."""

    begin: Count
    end: Count


@dataclass(frozen=True)
class LayerEntry:
    """One row of the layer table. ``precision`` is the numeric type that the layer computes with,
    ``plan`` holds the fields of the plan's dataclass, ``code`` is the layer's part of each code
    image."""

    name: Text
    kind: Text
    source: tuple[Text, ...]
    precision: Precision
    plan: dict[str, Any] | None
    predicted_cycles: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
    macs: Count
    code: tuple[CodeRange, ...]


@dataclass(frozen=True)
class InstructionOrigin:
    """Where an instruction comes from: layer (None: the program's frame), stream of a DMA
    instruction, and the registers that hold its tile's loop indices."""

    layer: int | None
    stream: Stream
    tile: dict[str, int]


@dataclass(frozen=True)
class Image:
    """A program placed at an address: what to write into DRAM before it runs."""

    addresses: dict[Segment, int]
    code: NDArray[np.uint32]
    constants: bytes | bytearray
    entry_address: int
    parameter_address: int
    end_address: int

    def address(self, slot: TensorSlot) -> int:
        return self.addresses[slot.segment] + slot.offset
