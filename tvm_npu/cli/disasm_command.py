"""``tvm-npu disasm``: a program file, or the programs in a compiled library, as assembly."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from tvm_npu.cli.errors import CliError
from tvm_npu.cli.files import read_bytes
from tvm_npu.cli.shown import shown
from tvm_npu.cli.terminal import Terminal
from tvm_npu.codegen.errors import ProgramError
from tvm_npu.codegen.program.annotate import code_comments, program_isa
from tvm_npu.codegen.program.format import WORD_BYTES, Program, Segment, TensorSlot
from tvm_npu.codegen.program.library import damage_in, program_bytes_in
from tvm_npu.codegen.program.parts import MAGIC
from tvm_npu.sim.bounded_files import MOST_BYTES
from tvm_npu.sim.isa.disassembler import disassemble_code

DESCRIPTION = """\
Shows a program as assembly, at the addresses at which it is run, with labels, a heading for each
layer, and comments that say which stream an instruction moves and where tile indices are kept.
PROGRAM is a file of 'tvm-npu compile', or a library that TVM's export_library wrote (all programs
in it are shown). The text assembles back to the same words.
"""
EXAMPLES = """\
examples:
  tvm-npu disasm programs/tvmgen_default_npu_main_0.npu
  tvm-npu disasm programs/tvmgen_default_npu_main_0.npu --layer conv1
  tvm-npu disasm lenet.so
"""
_ELF = b"\x7fELF"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", type=Path, metavar="PROGRAM.npu|MODEL.so")
    parser.add_argument("--layer", metavar="NAME", help="show only this layer")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    content = read_bytes(args.program, "program", MOST_BYTES, MAGIC, _ELF)
    is_library = content.startswith(_ELF)
    try:
        found = program_bytes_in(content) if is_library else [content]
        programs = [Program.from_bytes(data) for data in found]
    except ProgramError as error:
        raise CliError(f"{str(args.program)!r}: {error}") from error
    damage = damage_in(content, found) if is_library else None
    if not programs:
        behind = "" if damage is None else f", and {damage}"
        raise CliError(f"{str(args.program)!r} holds no sound NPU program{behind}")
    if damage is not None:
        terminal.note(f"{str(args.program)!r} holds {damage}; it is not shown")
    texts = [listing(program, args.layer) for program in programs]
    shown_texts = [text for text in texts if text is not None]
    if not shown_texts:
        names = dict.fromkeys(layer.name for program in programs for layer in program.layers)
        raise CliError(f"no layer {args.layer!r}; the layers are {', '.join(names)}")
    terminal.out.file.write("\n".join(shown_texts))
    return 0


def listing(program: Program, layer: str | None = None) -> str | None:
    """Assembly of ``program``, or of one layer; None when it has no such layer."""
    base = program.machine_description().dram.base_address
    image = program.image(base)
    parts = [(0, len(image.code))]
    if layer is not None:
        parts = _apart(
            (code.begin // WORD_BYTES, code.end // WORD_BYTES)
            for entry in program.layers
            if entry.name == layer
            for code in entry.code
        )
        if not parts:
            return None
    comments = code_comments(program)
    start = image.addresses[Segment.CODE]
    texts = [_heading(program, image.addresses)]
    for begin, end in parts:
        inside = {at - begin: comments[at] for at in range(begin, end) if at in comments}
        code = image.code[begin:end]
        address = start + WORD_BYTES * begin
        texts.append(disassemble_code(code, address, inside, isa=program_isa(program)))
    return "\n".join(texts)


def _apart(parts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """In ascending order, those that overlap as one: any layer may say that all of the code is
    its own."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(parts):
        if found and begin < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif begin < end or not found:
            found.append((begin, end))
    return found


def _heading(program: Program, addresses: dict[Segment, int]) -> str:
    lines = [
        f"program {program.name}: {program.machine['name']}, {program.precision}, planner "
        f"{program.planner}"
    ]
    for segment, address in addresses.items():
        size = program.segments[segment].size_bytes
        if size or segment is not Segment.STATES:
            lines.append(f"{segment.value:<11} {address:#010x}, {size:,} bytes")
    for what, slots in (("input", program.inputs), ("output", program.outputs)):
        lines += [f"{what} {_slot(slot, addresses)}" for slot in slots]
    return "".join(f"# {shown(line)}\n" for line in lines)


def _slot(slot: TensorSlot, addresses: dict[Segment, int]) -> str:
    shape = "x".join(map(str, slot.shape))
    return (
        f"{slot.name}: {shape} {slot.element_type}, {slot.scale}, at "
        f"{addresses[slot.segment] + slot.offset:#010x}"
    )
