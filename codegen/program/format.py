"""The program file, format 2: code, constants, relocations and everything that explains them.

Layout: a prologue of fixed size (magic, version, sizes, the header's SHA-256), the header as
JSON, then the binary sections in the header's order, each with its length and SHA-256. Nothing in
the file is executed when it is read, and no size is believed before it is checked against the
bytes that are there. Equal programs have equal bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tvm_npu.codegen.errors import ProgramError
from tvm_npu.codegen.program.check import check, require
from tvm_npu.codegen.program.parts import (
    DEBUG,
    FORMAT_VERSION,
    LARGEST_HEADER_BYTES,
    LONGEST_LOOP_NAME,
    MAGIC,
    MOST_HEADER_VALUES,
    MOST_LOOPS,
    PROLOGUE,
    RELOCATION,
    SECTIONS,
    SEGMENTS,
    WORD_BYTES,
    CodeRange,
    Count,
    Image,
    InstructionOrigin,
    LayerEntry,
    LookupTable,
    Segment,
    SegmentSize,
    TensorSlot,
    Text,
)
from tvm_npu.sim.arithmetic import aligned
from tvm_npu.sim.bounded_files import MOST_BYTES, read_bounded
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.frames import Tabular
from tvm_npu.sim.machine_file import machine_from_dict
from tvm_npu.sim.machine_parts import Precision
from tvm_npu.sim.paths import as_path
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.texts import TextError, check_values
from tvm_npu.sim.whole_files import write_whole


@dataclass(frozen=True, eq=False)
class Program(Tabular):
    """A compiled region for one machine.

    ``relocations`` is a RELOCATION array: the 32-bit word at ``offset`` of segment number
    ``segment`` is increased by the address of segment number ``target``. ``debug`` is a DEBUG
    array with one entry an instruction (layer -1: frame), ``scopes`` the register tables that
    its entries name. ``images`` are the parts of ``code`` that control units run: one for all of
    them (left out: the whole code), or one for each in their order. ``precision`` is the numeric
    type that was asked for; tensors and layers each say theirs. ``batch`` images are computed in
    one run, each in its share of activations and states: slots lie in the first share, those of
    the next image a share behind (`share_bytes`).
    """

    name: str
    machine: dict[str, Any]
    precision: Precision
    planner: str
    inputs: tuple[TensorSlot, ...]
    outputs: tuple[TensorSlot, ...]
    intermediates: tuple[TensorSlot, ...]
    segments: dict[Segment, SegmentSize]
    parameter_offset: int
    layers: tuple[LayerEntry, ...]
    scopes: tuple[dict[str, int], ...]
    code: NDArray[np.uint32] = field(repr=False)
    constants: bytes | bytearray = field(repr=False)
    relocations: NDArray[Any] = field(repr=False)
    debug: NDArray[Any] = field(repr=False)
    images: tuple[CodeRange, ...] = ()
    states: tuple[TensorSlot, ...] = ()
    tables: tuple[LookupTable, ...] = ()
    batch: int = 1

    def __post_init__(self) -> None:
        if not self.images:
            whole = CodeRange(0, WORD_BYTES * len(self.code))
            object.__setattr__(self, "images", (whole,))

    def flat_rows(self) -> list[dict[str, Any]]:
        """A row for each layer: what it computes and, where it has one, its plan's fields."""
        return [
            {
                "layer": layer.name,
                "kind": layer.kind,
                "precision": layer.precision,
                "macs": layer.macs,
                "predicted_cycles": layer.predicted_cycles,
                **{f"plan_{key}": value for key, value in (layer.plan or {}).items()},
            }
            for layer in self.layers
        ]

    def machine_description(self) -> MachineDescription:
        return machine_from_dict(dict(self.machine), origin=f"program {self.name}")

    def origin(self, instruction: int) -> InstructionOrigin:
        """Where instruction number ``instruction`` comes from."""
        entry = self.debug[instruction]
        layer = int(entry["layer"])
        scope = self.scopes[int(entry["scope"])]
        return InstructionOrigin(
            None if layer < 0 else layer, Stream(int(entry["stream"])), dict(scope)
        )

    def share_bytes(self, segment: Segment) -> int:
        """How far the tensors of the next image of a run lie behind those of one."""
        return self.segments[segment].size_bytes // self.batch

    def placement(self, base_address: int) -> dict[Segment, int]:
        """The address of every segment when the program starts at ``base_address``."""
        addresses = {}
        position = base_address
        for segment in SEGMENTS:
            size = self.segments[segment]
            position = aligned(position, size.alignment_bytes)
            addresses[segment] = position
            position += size.size_bytes
        if not 0 <= base_address <= position <= 1 << 32:
            raise ProgramError(
                f"program {self.name!r} at {base_address:#x} would end at {position:#x}, outside "
                "the 32-bit address space"
            )
        return addresses

    @property
    def size_bytes(self) -> int:
        """Memory that the program takes when it starts at an aligned address."""
        alignment = max(size.alignment_bytes for size in self.segments.values())
        last = SEGMENTS[-1]
        return self.placement(alignment)[last] + self.segments[last].size_bytes - alignment

    def image(self, base_address: int) -> Image:
        """The program relocated to ``base_address``."""
        addresses = self.placement(base_address)
        code = self.code.astype("<u4")
        constants = self.constants
        words = {Segment.CODE: code, Segment.CONSTANTS: np.frombuffer(constants, "<u4")}
        for number, segment in enumerate(SEGMENTS):
            records = self.relocations[self.relocations["segment"] == number]
            if segment not in words or not len(records):
                continue
            words[segment] = words[segment].copy()  # only then: constants can be large
            bases = np.array([addresses[target] for target in SEGMENTS], np.uint64)
            added = bases[records["target"]].astype(np.uint32)
            np.add.at(words[segment], records["offset"] // WORD_BYTES, added)
            if segment == Segment.CONSTANTS:
                constants = words[segment].tobytes()
        last = SEGMENTS[-1]
        end = addresses[last] + self.segments[last].size_bytes
        return Image(
            addresses,
            words[Segment.CODE].astype(np.uint32),
            constants,
            addresses[Segment.CODE],
            addresses[Segment.CONSTANTS] + self.parameter_offset,
            end,
        )

    def checked(self) -> Program:
        """The program as its file would be read: for one that anybody may have made by hand.
        ProgramError for parts that no file holds, and for parts that contradict each other."""
        for name, kind in _ARRAYS.items():
            array = getattr(self, name)
            fits = isinstance(array, np.ndarray) and (array.dtype, array.ndim) == (kind, 1)
            found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array)
            require(fits, name, found, f"an array [N] of {kind}")
        constants = type(self.constants)
        require(constants in (bytes, bytearray), "constants", constants, "bytes")
        try:
            text = _header_text(_header_values(self, ()))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise ProgramError(f"program: no file holds parts of such types: {error}") from error
        _check_header(text)
        program = replace(self, **_parts(_header_of(text)))
        check(program)
        return program

    def to_bytes(self) -> bytes:
        """The program file. Raises ProgramError as `file_parts`."""
        return b"".join(self.file_parts())

    def file_parts(self) -> tuple[bytes | bytearray, ...]:
        """The program file in parts, of which the constants are no copy: they are as large as
        everything else together. ProgramError as `checked`."""
        program = self.checked()
        sections = {
            "code": program.code.astype("<u4").tobytes(),
            "constants": program.constants,
            "relocations": program.relocations.tobytes(),
            "debug": program.debug.tobytes(),
        }
        table = tuple(
            _Section(
                name=name, size_bytes=len(sections[name]),
                sha256=hashlib.sha256(sections[name]).hexdigest(),
            )
            for name in SECTIONS
        )  # fmt: skip
        header = _header_values(program, table)
        if program.batch == 1:
            del header["batch"]  # as files have it that are older than batches
        for slots in ("inputs", "outputs", "intermediates", "states"):
            for slot in header[slots]:
                if not slot["source"]:
                    del slot["source"]  # the same
        text = _header_text(header)
        _check_header(text)
        total = PROLOGUE.size + len(text) + sum(len(section) for section in sections.values())
        digest = hashlib.sha256(text).digest()
        prologue = PROLOGUE.pack(MAGIC, FORMAT_VERSION, len(text), total, digest)
        return (prologue, text, *(sections[name] for name in SECTIONS))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Program:
        """Reads a program file; ProgramError says what is wrong with it."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise ProgramError(f"a program file is a {type(data).__name__}; expected its bytes")
        header, sections = _read(bytes(data))
        relocations = np.frombuffer(sections["relocations"], RELOCATION)
        debug = np.frombuffer(sections["debug"], DEBUG)
        program = cls(
            **_parts(header),
            code=np.frombuffer(sections["code"], "<u4").astype(np.uint32),
            constants=sections["constants"],
            relocations=relocations,
            debug=debug,
        )
        check(program)
        return program

    def to_file(self, path: str | Path) -> None:
        """Writes the program so that ``path`` never holds half of it."""
        write_whole(path, *self.file_parts())

    @classmethod
    def from_file(cls, path: str | Path) -> Program:
        """Reads a program file. Raises OSError when there is none, else as `from_bytes`."""
        path = as_path(path, "a program file's path", ProgramError)
        return cls.from_bytes(read_bounded(path, MOST_BYTES, MAGIC))


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Section(_Part):
    name: Text
    size_bytes: Count
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


_Scope = Annotated[
    dict[
        Annotated[str, Field(max_length=LONGEST_LOOP_NAME)], Annotated[int, Field(ge=0, le=31)]
    ],
    Field(max_length=MOST_LOOPS),
]  # fmt: skip


class _Header(_Part):
    name: Text
    machine: dict[str, Any]
    precision: Precision
    planner: Text
    inputs: tuple[TensorSlot, ...]
    outputs: tuple[TensorSlot, ...]
    intermediates: tuple[TensorSlot, ...]
    segments: dict[Segment, SegmentSize]
    parameter_offset: Count
    layers: tuple[LayerEntry, ...]
    scopes: tuple[_Scope, ...]
    images: Annotated[tuple[CodeRange, ...], Field(min_length=1)]
    states: tuple[TensorSlot, ...]
    tables: tuple[LookupTable, ...]
    batch: Annotated[int, Field(ge=1, le=1 << 16)] = 1
    sections: tuple[_Section, ...]


_HEADER: TypeAdapter[_Header] = TypeAdapter(_Header)
_ARRAYS = {"code": np.dtype("<u4"), "relocations": RELOCATION, "debug": DEBUG}


def _parts(header: _Header | Program) -> dict[str, Any]:
    """What of a program its header holds, by name."""
    return {name: getattr(header, name) for name in _Header.model_fields if name != "sections"}


def _header_values(program: Program, sections: tuple[_Section, ...]) -> dict[str, Any]:
    """The header as JSON has it. What is of another type than it should be stays as it is."""
    header = _Header.model_construct(**_parts(program), sections=sections)
    values: dict[str, Any] = _HEADER.dump_python(header, mode="json", warnings=False)
    return values


def _header_text(values: dict[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _header_of(text: bytes) -> _Header:
    try:
        return _HEADER.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "header"
        raise ProgramError(f"program file: header: {key}: {first['msg']}") from error


def _check_header(text: bytes) -> None:
    """Bounds of a header, of one that is read before it is parsed."""
    most = LARGEST_HEADER_BYTES
    require(len(text) <= most, "header length", len(text), f"at most {most}")
    try:
        check_values(text, MOST_HEADER_VALUES, help_="; compile a model in smaller parts")
    except TextError as error:
        raise ProgramError(f"program file: header: {error}") from None


def _check_version(version: int) -> None:
    if version != FORMAT_VERSION:
        old = version < FORMAT_VERSION
        help_ = "compile the model again" if old else "it was written by a newer tvm-npu: update"
        raise ProgramError(
            f"program file: format version is {version}, expected {FORMAT_VERSION}; {help_}"
        )


def _read(data: bytes) -> tuple[_Header, Mapping[str, bytes]]:
    """The validated header and the sections whose lengths and sums agree with it."""
    start = data[: len(MAGIC)]
    require(start == MAGIC[: len(start)], "magic", start, MAGIC)
    require(len(data) >= PROLOGUE.size, "length", len(data), f"at least {PROLOGUE.size}")
    _, version, header_bytes, total, digest = PROLOGUE.unpack_from(data)
    _check_version(version)
    require(len(data) == total, "length", len(data), total)
    rest = len(data) - PROLOGUE.size
    require(header_bytes <= rest, "header length", header_bytes, f"at most {rest}")
    text = data[PROLOGUE.size : PROLOGUE.size + header_bytes]
    found = hashlib.sha256(text).hexdigest()
    require(found == digest.hex(), "SHA-256 of the header", found, digest.hex())
    _check_header(text)
    header = _header_of(text)
    names = tuple(section.name for section in header.sections)
    require(names == SECTIONS, "list of sections", names, SECTIONS)
    size = sum(section.size_bytes for section in header.sections)
    require(size == rest - header_bytes, "size of all sections", size, rest - header_bytes)
    sections = {}
    position = PROLOGUE.size + header_bytes
    for section in header.sections:
        content = data[position : position + section.size_bytes]
        found = hashlib.sha256(content).hexdigest()
        require(found == section.sha256, f"SHA-256 of {section.name}", found, section.sha256)
        sections[section.name] = content
        position += section.size_bytes
    for name, unit in (
        ("code", WORD_BYTES),
        ("constants", WORD_BYTES),
        ("relocations", RELOCATION.itemsize),
        ("debug", DEBUG.itemsize),
    ):
        require(
            len(sections[name]) % unit == 0, f"length of {name}", len(sections[name]),
            f"a multiple of {unit}",
        )  # fmt: skip
    return header, sections
