"""What a program consists of: tensors, segments, layers, and the formats of its sections."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tvm_npu.sim.streams import Stream

MAGIC = b"TVMNPUP\n"
FORMAT_VERSION = 1
PROLOGUE = struct.Struct("<8sIIQ32s")
"""Magic, format version, header bytes, total bytes, SHA-256 of the header."""
LARGEST_HEADER_BYTES = 1 << 28
SECTIONS = ("code", "constants", "relocations", "debug")
WORD_BYTES = 4


class Segment(str, Enum):
    """Parts of a program that get a DRAM address of their own when it is loaded."""

    CODE = "code"
    CONSTANTS = "constants"
    ACTIVATIONS = "activations"


SEGMENTS = tuple(Segment)
"""In the order in which they are placed and numbered in the relocation section."""

RELOCATION = np.dtype([("segment", "<u4"), ("offset", "<u4"), ("target", "<u4")])
DEBUG = np.dtype([("layer", "<i2"), ("stream", "<u2"), ("scope", "<u4")])

Count = Annotated[int, Field(ge=0, le=1 << 40)]
Text = Annotated[str, Field(max_length=1 << 16)]


@dataclass(frozen=True)
class TensorSlot:
    """A tensor in memory: batch-free shape, Q-point and place. An element's numeric type has
    ``element_bytes``; it lies, sign-extended, in ``stored_bytes`` (left out: as many)."""

    name: Text
    shape: tuple[Annotated[int, Field(ge=1, le=1 << 32)], ...]
    q_point: Annotated[int, Field(ge=-1024, le=1024)]
    element_bytes: Literal[1, 2]
    segment: Segment
    offset: Count
    stored_bytes: Literal[0, 1, 2, 4] = 0

    def __post_init__(self) -> None:
        if not self.stored_bytes:
            object.__setattr__(self, "stored_bytes", self.element_bytes)

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * self.stored_bytes


@dataclass(frozen=True)
class SegmentSize:
    size_bytes: Count
    alignment_bytes: Annotated[int, Field(ge=1, le=1 << 20)]


@dataclass(frozen=True)
class LayerEntry:
    """One row of the layer table. ``plan`` holds the fields of the plan's dataclass;
    ``code_begin`` and ``code_end`` are byte offsets in the code."""

    name: Text
    kind: Text
    source: tuple[Text, ...]
    plan: dict[str, Any] | None
    predicted_cycles: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
    macs: Count
    code_begin: Count
    code_end: Count


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
    constants: bytes
    entry_address: int
    parameter_address: int
    end_address: int

    def address(self, slot: TensorSlot) -> int:
        return self.addresses[slot.segment] + slot.offset
