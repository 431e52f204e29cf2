"""Text of an execution plan as its parts: sections, numbers and names, each with its line.

No parser library is used: each line of a plan is a sentence of its own, in one of three forms, and
a regular expression says each form. The rest of this module are checks (counts, order, repetition)
whose messages name what is wrong; a grammar would not replace them, and its errors, "unexpected
token", would have to be translated back into them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tvm_npu.codegen.tiles.ir.document import KINDS, SECTIONS, IrError, MemoryVariable, TileKind

_SECTION = re.compile(r"\[\s*(\w+)\s*\]$")
_VARIABLE = re.compile(r"(\w+)\s*(?:\[([^\]]*)\])?\s*\(([^)]*)\)$")
_MEMORY = re.compile(r"(IN_MEM|WT_MEM|OT_MEM|RS_MEM|BS_MEM)_(\d+)$")
_TILE = re.compile(r"(INPUT|WEIGHT|OUTPUT|RESIDUAL|BIAS)_\d+$")
LONGEST_LINE = 1000
MOST_LINES = 1 << 18
MOST_CHARACTERS = 1 << 25
LARGEST = 1 << 40
INFO = {
    "INPUT": 4, "WEIGHT": 4, "OUTPUT": 4, "GROUPS": 1, "DILATION": 2, "WORDS": 2, "STRIDE": 2,
    "PADDING": 4, "TOUCHED": 2, "TAPS": 1,
}  # fmt: skip
"""Names in the first section and how many numbers they have."""
REQUIRED = ("INPUT", "WEIGHT", "OUTPUT")
ARGUMENTS = {
    "LOAD": (2, 2), "SLIDE": (3, 3), "STORE": (2, 2), "CONV": (5, 5), "CLEAR": (1, 1),
    "FINISH": (2, 3),
}  # fmt: skip
"""Commands and how many arguments they have."""


@dataclass(frozen=True)
class TileText:
    """A tile as written: ``extents`` are (batch or filters, channel, height, width)."""

    name: str
    kind: TileKind
    offset: int
    extents: tuple[int, int, int, int]
    line: int


@dataclass(frozen=True)
class Command:
    word: str
    arguments: tuple[str, ...]
    line: int


@dataclass
class Parsed:
    info: dict[str, tuple[int, ...]] = field(default_factory=dict)
    info_lines: dict[str, int] = field(default_factory=dict)
    memories: dict[str, MemoryVariable] = field(default_factory=dict)
    memory_lines: dict[str, int] = field(default_factory=dict)
    tiles: dict[str, TileText] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    last_line: int = 1


def parse(text: str) -> Parsed:
    """Sections in their order, every name once, every number a number. Raises IrError."""
    parsed = Parsed()
    section = -1
    for line, content in _lines(text):
        parsed.last_line = line
        header = _SECTION.match(content)
        if header:
            section = _next_section(header.group(1), section, line)
        elif section < 0:
            raise IrError(f"{content!r} stands in front of the section [info]", line)
        elif SECTIONS[section] == "info":
            _info(parsed, content, line)
        elif SECTIONS[section] == "var":
            _variable(parsed, content, line)
        else:
            parsed.commands.append(_command(content, line))
    if section < len(SECTIONS) - 1:
        raise IrError(f"the section [{SECTIONS[section + 1]}] is missing", parsed.last_line)
    missing = [name for name in REQUIRED if name not in parsed.info]
    if missing:
        raise IrError(f"[info] has no {', '.join(missing)}", parsed.last_line)
    return parsed


def _lines(text: str) -> Iterator[tuple[int, str]]:
    if len(text) > MOST_CHARACTERS:
        raise IrError(f"a text of {len(text)} characters; at most {MOST_CHARACTERS}", 1)
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        raise IrError(f"{len(lines)} lines; at most {MOST_LINES}: take larger tiles", MOST_LINES)
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE:
            raise IrError(f"a line of {len(line)} characters; at most {LONGEST_LINE}", number)
        content = line.partition("//")[0].strip()
        if content:
            yield number, content


def _next_section(name: str, section: int, line: int) -> int:
    if name not in SECTIONS:
        known = ", ".join(f"[{known}]" for known in SECTIONS)
        raise IrError(f"unknown section [{name}]; there are {known}", line)
    if SECTIONS.index(name) != section + 1:
        order = ", ".join(f"[{known}]" for known in SECTIONS)
        raise IrError(f"section [{name}] in the wrong place; the order is {order}", line)
    return section + 1


def numbers(text: str, what: str, line: int, least: int = 0) -> tuple[int, ...]:
    """Integers apart by commas."""
    found = []
    for part in text.split(","):
        word = part.strip()
        if not re.fullmatch(r"-?\d{1,18}", word):
            raise IrError(f"{what}: {word!r} is no integer", line)
        value = int(word)
        if not least <= value <= LARGEST:
            raise IrError(f"{what}: {value}; numbers are from {least} to {LARGEST}", line)
        found.append(value)
    return tuple(found)


def _counted(text: str, what: str, count: int, line: int, least: int = 1) -> tuple[int, ...]:
    found = numbers(text, what, line, least)
    if len(found) != count:
        raise IrError(f"{what} has {len(found)} numbers, expected {count}", line)
    return found


def _info(parsed: Parsed, content: str, line: int) -> None:
    found = _VARIABLE.match(content)
    if found is None or found.group(2) is not None:
        raise IrError(f"{content!r} is not of the form NAME(number, ...)", line)
    name = found.group(1)
    if name not in INFO:
        raise IrError(f"unknown name {name} in [info]; there are {', '.join(INFO)}", line)
    if name in parsed.info:
        raise IrError(f"{name} is given twice, first in line {parsed.info_lines[name]}", line)
    least = -LARGEST if name == "PADDING" else 1  # negative padding crops
    parsed.info[name] = _counted(found.group(3), name, INFO[name], line, least)
    parsed.info_lines[name] = line


def _variable(parsed: Parsed, content: str, line: int) -> None:
    found = _VARIABLE.match(content)
    if found is None:
        raise IrError(f"{content!r} is neither NAME(bytes) nor NAME[offset](extents)", line)
    name, offset, inside = found.groups()
    if name in parsed.tiles or name in parsed.memories:
        before = (
            parsed.tiles[name].line if name in parsed.tiles else parsed.memory_lines[name]
        )
        raise IrError(f"{name} is given twice, first in line {before}", line)
    memory, tile = _MEMORY.match(name), _TILE.match(name)
    if memory is not None:
        if offset is not None:
            raise IrError(f"{name}: a memory has no offset", line)
        (size,) = _counted(inside, name, 1, line)
        kind = KINDS[memory.group(1)]
        parsed.memories[name] = MemoryVariable(kind, int(memory.group(2)), size)
        parsed.memory_lines[name] = line
        return
    if tile is None:
        raise IrError(
            f"unknown variable {name}; memories are {', '.join(f'{one}_n' for one in KINDS)}, "
            f"tiles {', '.join(f'{one}_n' for one in KINDS.values())}",
            line,
        )
    if offset is None:
        raise IrError(f"{name}: a tile needs its offset, {name}[offset](extents)", line)
    (begin,) = numbers(offset, f"{name}: offset", line) if "," not in offset else (-1,)
    if begin < 0:
        raise IrError(f"{name}: offset {offset!r} is no integer", line)
    values = numbers(inside, name, line, least=1)
    if len(values) == 3:  # as the thesis writes some: without the batch
        values = (1, *values)
    if len(values) != 4:
        raise IrError(f"{name} has {len(values)} extents, expected 4", line)
    tile_kind: TileKind = tile.group(1)  # type: ignore[assignment]
    parsed.tiles[name] = TileText(
        name, tile_kind, begin, (values[0], values[1], values[2], values[3]), line
    )


def _command(content: str, line: int) -> Command:
    """Words apart by blanks; blanks inside of parentheses count for nothing."""
    packed = re.sub(r"\([^)]*\)", lambda group: re.sub(r"\s", "", group.group()), content)
    word, *arguments = packed.split()
    if word not in ARGUMENTS:
        raise IrError(f"unknown command {word}; there are {', '.join(ARGUMENTS)}", line)
    low, high = ARGUMENTS[word]
    if not low <= len(arguments) <= high:
        wanted = str(low) if low == high else f"{low} or {high}"
        raise IrError(f"{word} has {len(arguments)} arguments, expected {wanted}", line)
    return Command(word, tuple(arguments), line)
