"""Execution plans as text: the intermediate representation of e-PlaNNer (thesis, 7.1).

Three sections: ``[info]`` has the tensors' extents, ``[var]`` the memories on chip (bytes) and the
tiles (``[offset]`` in elements from the tensor's begin, row-major; then batch, channel, height,
width), ``[text]`` the commands in program order::

    LOAD WT_MEM_0 WEIGHT_0
    LOAD IN_MEM_0 INPUT_0
    CONV OUTPUT_0 INPUT_0 WEIGHT_0 1 (1,1,1,0)
    STORE OUTPUT_0 OT_MEM_0

The arguments of CONV are the tiles, the stride, ``s`` or ``(rows,columns)``, and the padding
(left, right, top, bottom). What the thesis leaves out and a program needs:

- ``GROUPS(g)``, ``DILATION(rows,columns)``, ``WORDS(element,sum)`` in ``[info]``: groups, dilation
  and the bytes of an element and of a partial sum; without them 1, (1,1) and (4,4).
- ``TOUCHED(rows,columns)`` in ``[info]``: of INPUT only every such row and column is there for
  tiles, whose offsets and extents count these alone, and to which the CONVs' stride is 1.
- ``TAPS(n)`` in ``[info]``: CONVs take n taps of their kernels at a time, on machines that can.
- ``RESIDUAL_n`` and ``BIAS_n`` tiles with memories ``RS_MEM_n`` and ``BS_MEM_n``.
- ``FINISH OUTPUT_n BIAS_m [RESIDUAL_k]``: sums become results. An OUTPUT tile that is stored
  before that leaves as partial sums, and ``LOAD OT_MEM_k OUTPUT_n`` brings these back.
- ``SLIDE IN_MEM_k INPUT_n INPUT_m``: INPUT_n comes to IN_MEM_k; the rows that INPUT_m has, too,
  move from there, only the others come from outside.
- ``CLEAR OUTPUT_n``: sums of a tile whose windows all lie in the padding; then ``[info]`` has
  ``STRIDE(rows,columns)`` and the layer's ``PADDING(left,right,top,bottom)``, which otherwise
  follow from the CONVs.

A CONV begins at zero when nothing has been summed in its OUTPUT tile before; that tile lies where
the next STORE of it says. Memories of a kind (IN and RS are the input memory, WT the weight memory,
OT the output memory, BS the bias memory; a shared memory holds all but BS) lie one behind the other
in the order of the text, each from a multiple of 8 bytes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from tvm_npu.codegen.errors import CodegenError, EmitError
from tvm_npu.codegen.plan.loops.plan import touched
from tvm_npu.codegen.plan.loops.room import aligned
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.emit.actions import (
    Action,
    Clear,
    Finish,
    Held,
    Load,
    Multiply,
    Slide,
    Store,
    Tile,
    TileKind,
)
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine

PREFIXES: dict[TileKind, str] = {
    "INPUT": "IN_MEM", "WEIGHT": "WT_MEM", "OUTPUT": "OT_MEM", "RESIDUAL": "RS_MEM",
    "BIAS": "BS_MEM",
}  # fmt: skip
KINDS = {prefix: kind for kind, prefix in PREFIXES.items()}
SECTIONS = ("info", "var", "text")


class IrError(CodegenError, ValueError):
    """Text that is no execution plan; ``line`` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


@dataclass(frozen=True)
class MemoryVariable:
    """A place for tiles of one kind."""

    kind: TileKind
    number: int
    size_bytes: int

    @property
    def name(self) -> str:
        return f"{PREFIXES[self.kind]}_{self.number}"


@dataclass(frozen=True)
class Ir:
    """An execution plan. Tiles in ``actions`` are held at indices of ``memories``, not at byte
    offsets; ``comment`` are lines in front of everything; ``touched_only`` and ``taps_at_once`` as
    in `LoopPlan`."""

    problem: ConvProblem
    memories: tuple[MemoryVariable, ...]
    actions: tuple[Action, ...]
    comment: tuple[str, ...] = ()
    touched_only: bool = False
    taps_at_once: int = 1

    @property
    def seen(self) -> ConvProblem:
        """What tiles are cut from."""
        return touched(self.problem) if self.touched_only else self.problem

    def offsets(self, machine: TileMachine) -> tuple[int, ...]:
        """Where each memory variable begins in its memory.

        Raises EmitError when they do not fit the machine."""
        shared = isinstance(machine.memories, SharedMemory)
        used: dict[str, int] = {}
        offsets = []
        for variable in self.memories:
            memory = _memory_of(variable.kind, shared)
            begin = aligned(used.get(memory, 0))
            end = begin + variable.size_bytes
            available = getattr(machine.memories, f"{memory}_bytes")
            if end > available:
                raise EmitError(
                    f"{variable.name} ends at byte {end} of the {memory} memory of machine "
                    f"{machine.name!r}, which has {available}"
                )
            used[memory] = end
            offsets.append(begin)
        return tuple(offsets)

    def placed(self, machine: TileMachine) -> Iterator[Action]:
        """The actions with byte offsets."""
        offsets = self.offsets(machine)
        return (
            moved(action, lambda held: Held(held.tile, offsets[held.offset]))
            for action in self.actions
        )


def _memory_of(kind: TileKind, shared: bool) -> str:
    if kind == "BIAS":
        return "bias"
    if shared:
        return "shared"
    return {"INPUT": "input", "RESIDUAL": "input", "WEIGHT": "weight", "OUTPUT": "output"}[kind]


def held_tiles(action: Action) -> tuple[Held, ...]:
    """The tiles that an action names."""
    if isinstance(action, Load | Store):
        return (action.held,)
    if isinstance(action, Slide):
        return action.held, action.before
    if isinstance(action, Multiply):
        return action.out, action.in_, action.weight
    if isinstance(action, Finish):
        residual = () if action.residual is None else (action.residual,)
        return action.out, action.bias, *residual
    return (action.out,)


def moved(action: Action, where: Callable[[Held], Held]) -> Action:
    """``action`` with its tiles held elsewhere."""
    if isinstance(action, Load | Store):
        return replace(action, held=where(action.held))
    if isinstance(action, Slide):
        return replace(action, held=where(action.held), before=where(action.before))
    if isinstance(action, Multiply):
        return replace(
            action, out=where(action.out), in_=where(action.in_), weight=where(action.weight)
        )
    if isinstance(action, Finish):
        residual = None if action.residual is None else where(action.residual)
        return replace(action, out=where(action.out), bias=where(action.bias), residual=residual)
    return replace(action, out=where(action.out))


def to_text(ir: Ir) -> str:
    """The text; `ir_read.read_ir` reads it back."""
    problem = ir.problem
    lines = [f"// {line}".rstrip() for line in ir.comment]
    depth = problem.channels // problem.groups
    lines += [
        "[info]",
        "// (batch, channel, height, width)",
        f"INPUT(1,{problem.channels},{problem.in_rows},{problem.in_columns})",
        f"WEIGHT({problem.filters},{depth},{problem.kernel[0]},{problem.kernel[1]})",
        f"OUTPUT(1,{problem.filters},{problem.rows},{problem.columns})",
    ]
    if problem.groups > 1:
        lines.append(f"GROUPS({problem.groups})")
    if problem.dilation != (1, 1):
        lines.append(f"DILATION({problem.dilation[0]},{problem.dilation[1]})")
    if ir.touched_only:
        lines.append(f"TOUCHED({problem.stride[0]},{problem.stride[1]})")
    if ir.taps_at_once > 1:
        lines.append(f"TAPS({ir.taps_at_once})")
    if any(isinstance(action, Clear) for action in ir.actions):
        top, left, bottom, right = problem.padding
        lines += [
            f"STRIDE({problem.stride[0]},{problem.stride[1]})",
            f"PADDING({left},{right},{top},{bottom})",
        ]
    lines += [
        "// bytes of an element and of a partial sum",
        f"WORDS({problem.element_bytes},{problem.accumulator_bytes})",
        "",
        "[var]",
        "// Memory variables with size (bytes)",
        *(f"{variable.name}({variable.size_bytes})" for variable in ir.memories),
        "// Tiles [offset] (batch, channel, height, width)",
    ]
    names, problem = _names(ir.actions), ir.seen
    order: list[TileKind] = ["INPUT", "WEIGHT", "OUTPUT", "RESIDUAL", "BIAS"]
    for kind in order:
        lines += [
            f"{name}[{tile_offset(problem, tile)}]({_extents(problem, tile)})"
            for (tile, _), name in names.items()
            if tile.kind == kind
        ]
    lines += ["", "[text]"]
    memories = [variable.name for variable in ir.memories]
    lines += [_command(action, problem, names, memories) for action in ir.actions]
    return "\n".join(lines) + "\n"


_Key = tuple[Tile, int]


def _key(held: Held) -> _Key:
    """What has a name of its own: an OUTPUT tile wherever it lies, others in each memory, since
    they may be in two at the same time."""
    return held.tile, -1 if held.tile.kind == "OUTPUT" else held.offset


def _names(actions: Iterable[Action]) -> dict[_Key, str]:
    names: dict[_Key, str] = {}
    counts: dict[str, int] = {}
    for action in actions:
        for held in held_tiles(action):
            key, kind = _key(held), held.tile.kind
            if key not in names:
                names[key] = f"{kind}_{counts.get(kind, 0)}"
                counts[kind] = counts.get(kind, 0) + 1
    return names


def tensor_of(problem: ConvProblem, kind: TileKind) -> tuple[int, int, int, int]:
    """(batch or filters, channels, height, width) of the tensor that tiles of a kind are cut
    from."""
    if kind == "INPUT":
        return 1, problem.channels, problem.in_rows, problem.in_columns
    if kind == "WEIGHT":
        return problem.filters, problem.channels // problem.groups, *problem.kernel
    if kind == "BIAS":
        return 1, problem.filters, 1, 1
    return 1, problem.filters, problem.rows, problem.columns


def tile_offset(problem: ConvProblem, tile: Tile) -> int:
    """Elements from the tensor's begin."""
    _, channels, height, width = tensor_of(problem, tile.kind)
    if tile.kind == "WEIGHT":
        return (tile.first[0] * channels + tile.rows[0]) * height * width
    return (tile.first[0] * height + tile.rows[0]) * width + tile.columns[0]


def _extents(problem: ConvProblem, tile: Tile) -> str:
    if tile.kind == "WEIGHT":
        return f"{tile.first[1]},{tile.rows[1]},{problem.kernel[0]},{problem.kernel[1]}"
    return f"1,{tile.first[1]},{tile.rows[1]},{tile.columns[1]}"


def behind(problem: ConvProblem, action: Multiply) -> tuple[int, int]:
    """Rows and columns of padding that the windows need behind the IN tile."""
    result = []
    outs = (action.out.tile.rows[1], action.out.tile.columns[1])
    ins = (action.in_.tile.rows[1], action.in_.tile.columns[1])
    for axis in (0, 1):
        needed = (outs[axis] - 1) * problem.stride[axis]
        needed += (problem.kernel[axis] - 1) * problem.dilation[axis] + 1
        result.append(needed - action.padding[axis] - ins[axis])
    return result[0], result[1]


def _command(
    action: Action, problem: ConvProblem, names: dict[_Key, str], memories: list[str]
) -> str:
    if isinstance(action, Load):
        return f"LOAD {memories[action.held.offset]} {names[_key(action.held)]}"
    if isinstance(action, Slide):
        both = f"{names[_key(action.held)]} {names[_key(action.before)]}"
        return f"SLIDE {memories[action.held.offset]} {both}"
    if isinstance(action, Store):
        return f"STORE {names[_key(action.held)]} {memories[action.held.offset]}"
    if isinstance(action, Clear):
        return f"CLEAR {names[_key(action.out)]}"
    if isinstance(action, Finish):
        words = ["FINISH", *(names[_key(held)] for held in held_tiles(action))]
        return " ".join(words)
    tiles = " ".join(names[_key(held)] for held in held_tiles(action))
    rows, columns = problem.stride
    stride = str(rows) if rows == columns else f"({rows},{columns})"
    bottom, right = behind(problem, action)
    top, left = action.padding
    return f"CONV {tiles} {stride} ({left},{right},{top},{bottom})"
