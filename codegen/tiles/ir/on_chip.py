"""Which tile of an execution plan lies in which memory, from command to command."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.emit.actions import Held, Tile, TileKind
from tvm_npu.codegen.tiles.ir.document import PREFIXES, IrError, MemoryVariable
from tvm_npu.codegen.tiles.ir.parse import Command
from tvm_npu.sim.machine_parts import BIAS_BYTES


@dataclass
class Sums:
    """What happened to one OUTPUT tile."""

    channels: list[tuple[int, int]] = field(default_factory=list)
    summed: int = 0
    is_finished: bool = False
    is_clear: bool = False
    is_away: bool = False
    """Its partial sums are outside of the chip."""


class OnChip:
    """A plan's memories and the tiles in them. Sums that are not stored yet are never lost."""

    def __init__(
        self,
        problem: ConvProblem,
        memories: dict[str, MemoryVariable],
        tiles: dict[str, Tile],
        sums: dict[str, Sums],
    ) -> None:
        self.problem, self.tiles, self.sums = problem, tiles, sums
        self.memories = list(memories.values())
        self._index = {name: index for index, name in enumerate(memories)}
        self._content: dict[int, str] = {}
        """Tile by memory."""
        self._place: dict[str, int] = {}
        """Memory by tile."""

    def memory(self, name: str, tile: str, command: Command) -> int:
        """The number of the memory ``name``. Raises IrError where ``tile`` cannot go there."""
        index = self._index.get(name)
        if index is None:
            raise IrError(f"unknown memory {name}", command.line)
        kind = self.tiles[tile].kind
        variable = self.memories[index]
        if variable.kind != kind:
            raise IrError(f"{tile} does not go to {name}, but to {PREFIXES[kind]}_n", command.line)
        needed = self.tiles[tile].count * self._width(kind)
        if needed > variable.size_bytes:
            raise IrError(
                f"{tile} needs {needed} bytes; {name} has {variable.size_bytes}", command.line
            )
        return index

    def _width(self, kind: TileKind) -> int:
        problem = self.problem
        return {
            "INPUT": problem.element_bytes,
            "RESIDUAL": problem.element_bytes,
            "WEIGHT": problem.element_bytes * problem.kernel[0] * problem.kernel[1],
            "OUTPUT": problem.accumulator_bytes,
            "BIAS": BIAS_BYTES,
        }[kind]

    def held(self, name: str, command: Command) -> Held:
        """A tile where it lies. Raises IrError when it is not on chip."""
        if name not in self._place:
            raise IrError(f"{command.word}: {name} is not on chip", command.line)
        return Held(self.tiles[name], self._place[name])

    def put(self, name: str, index: int, command: Command) -> None:
        """A tile takes a memory; what was there is gone."""
        before = self._content.get(index)
        if before is not None and before != name:
            lost = self.sums.get(before)
            if lost is not None and not lost.is_away:
                raise IrError(
                    f"{name} overwrites {before} in {self.memories[index].name}, which has not "
                    "been stored",
                    command.line,
                )
            self._place.pop(before, None)
        old = self._place.get(name)
        if old is not None and old != index:
            self._content.pop(old, None)
        self._content[index], self._place[name] = name, index

    def leave(self, name: str) -> None:
        """A tile gives its memory free."""
        self._content.pop(self._place.pop(name), None)
