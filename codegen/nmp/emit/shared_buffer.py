"""Buffers that TLTs fill for one another, and the semaphores that keep them in step.

Every TLT that uses such a buffer says when it no longer needs the content. A leader waits for all
of them and lets them go on, so that those that load can; where the leader is the only loader, it
just loads. A buffer that each TLT fills for itself needs nothing of this: the order of its program
is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm_npu.codegen.nmp.emit.commands import If, Nodes, Semaphore, when
from tvm_npu.codegen.nmp.emit.conventions import wait
from tvm_npu.codegen.nmp.emit.expressions import Expression, Variable
from tvm_npu.sim.nmp.xnmp import Level


@dataclass(frozen=True)
class Semaphores:
    """Numbers of the semaphores of a shared buffer: ``free`` (one a half) says that a member no
    longer needs a half; ``go``, one of each TLT, that loaders may load; ``arrived`` (one a half
    where several engines could overtake one another) that a part of a content is there."""

    free: tuple[int, int]
    go: int
    arrived: tuple[int, int]


@dataclass(frozen=True)
class SharedBuffer:
    """One buffer, in ``halves`` that take turns; a content comes in ``parts``.

    ``level`` (TLE or GLOBAL) says who the ``members`` are, all TLTs of it, and where the semaphores
    ``free`` lie; None is a buffer of the TLT's own. The leader is the core for which ``leader`` is
    0; ``loaders`` TLTs, those where ``loads`` is not 0, fill the buffer.
    """

    level: Level | None
    leader: Variable
    members: int
    loaders: int
    loads: Expression
    semaphores: Semaphores
    halves: int
    parts: int

    @property
    def _leader_loads_alone(self) -> bool:
        return self.loaders == 1

    def acquire(self, half: Expression, load: Nodes) -> Nodes:
        """Runs ``load`` at the loaders once nobody needs the content of ``half`` any more."""
        if self.level is None:
            return load
        level = self.level
        members = Expression.of(self.members)
        freed = by_half(
            half, lambda k: (Semaphore("wait", level, self.semaphores.free[k], members),)
        )
        if self._leader_loads_alone:
            return when(self.leader, "==", (*freed, *load))
        return (
            *when(self.leader, "==", (*freed, Semaphore("release", level, self.semaphores.go))),
            wait(self.semaphores.go),
            *when(self.loads, "!=", load),
        )

    def with_semaphore(self, half: Expression, load: Callable[[int], Nodes]) -> Nodes:
        """``load``, given the semaphore that says that the content of ``half`` arrives."""
        if self.parts == 1 or self.halves == 1:
            return load(self.semaphores.arrived[0])
        return by_half(half, lambda k: load(self.semaphores.arrived[k]))

    def await_content(self, half: Expression) -> Nodes:
        """All parts of the content of ``half`` are there."""
        return self.with_semaphore(half, lambda number: (wait(number, self.parts),))

    def release(self, half: Expression) -> Nodes:
        """This TLT no longer needs the content of ``half``."""
        if self.level is None:
            return ()
        level = self.level
        return by_half(half, lambda k: (Semaphore("signal", level, self.semaphores.free[k]),))

    def open(self) -> Nodes:
        """In front of the layer: all halves are free."""
        return tuple(
            node for k in range(self.halves) for node in self.release(Expression(constant=k))
        )

    def close(self) -> Nodes:
        """Behind the layer: the leader takes back what `open` and `release` gave."""
        if self.level is None:
            return ()
        level, members = self.level, Expression.of(self.members)
        waits = (
            Semaphore("wait", level, self.semaphores.free[k], members) for k in range(self.halves)
        )
        return when(self.leader, "==", tuple(waits))


def by_half(half: Expression, nodes: Callable[[int], Nodes]) -> Nodes:
    """Semaphore numbers are fixed in instructions, so a half that varies takes a branch."""
    if half.is_constant:
        return nodes(half.constant)
    return (If(half, "==", nodes(0), nodes(1)),)
