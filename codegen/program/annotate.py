"""A program's code as text: assembly with the layer, stream and tile of every part."""

from __future__ import annotations

from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.program.parts import WORD_BYTES
from tvm_npu.sim.isa.disassembler import disassemble_code
from tvm_npu.sim.isa.table import Isa
from tvm_npu.sim.kinds import machine_kind
from tvm_npu.sim.printable import one_line
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.texts import cut

LONGEST_COMMENT = 400
"""Of a line: every instruction may have one, with names of any length."""


def annotated_code(program: Program) -> str:
    """Disassembly with a comment wherever the layer, the tile's registers or the stream change.

    The text assembles back to the same words, whatever names say."""
    return disassemble_code(program.code, comments=code_comments(program), isa=program_isa(program))


def program_isa(program: Program) -> Isa:
    """The instruction set that a program's code is written in."""
    return machine_kind(program.machine_description().isa).isa


def code_comments(program: Program) -> dict[int, str]:
    """Where layer, tile registers or stream change: instruction number -> lines of text, one for
    each, whatever names say."""
    isa = program_isa(program)
    comments: dict[int, str] = {}
    titles: dict[int, str] = {}  # a layer's may come up at every instruction
    layer: int | None = -1
    tile: dict[str, int] = {}
    begins = {image.begin // WORD_BYTES: n for n, image in enumerate(program.images)}
    for index in range(len(program.code)):
        origin = program.origin(index)
        lines = []
        if index in begins and len(begins) > 1:
            lines.append(f"code of control unit {begins[index]}")
        if origin.layer != layer:
            layer = origin.layer
            if layer is not None and layer not in titles:
                titles[layer] = cut(_title(program, layer), LONGEST_COMMENT)
            lines.append("frame" if layer is None else titles[layer])
        if origin.tile != tile:
            tile = origin.tile
            names = (f"{name} in {isa.register_name(number)}" for name, number in tile.items())
            lines.append("tile: " + (", ".join(names) or "-"))
        if origin.stream != Stream.OTHER:
            lines.append(f"stream {origin.stream.name}")
        if lines:
            comments[index] = "\n".join(map(_comment, lines))
    return comments


def _comment(line: str) -> str:
    """Cut first, as names may be long, and last, as escapes are longer than what they stand for."""
    return cut(one_line(cut(line, LONGEST_COMMENT)), LONGEST_COMMENT)


def _title(program: Program, index: int) -> str:
    entry = program.layers[index]
    source = f" ({', '.join(entry.source)})" if entry.source else ""
    return f"layer {index}: {entry.kind} {entry.name}{source}"
