"""Where every instruction comes from: its layer, its stream, the tile that it works on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tvm_npu.sim.isa.builder import WORD_BYTES, CodeBuilder
from tvm_npu.sim.streams import Stream

Scope = tuple[tuple[str, int], ...]
"""(loop variable, register) of the tile that an instruction works on."""


class Origins:
    """Records, for each word of ``builder``, (layer or -1, stream, index into `scopes`)."""

    def __init__(self, builder: CodeBuilder) -> None:
        self._builder = builder
        self._records: list[tuple[int, Stream, int]] = []
        self._scopes: dict[Scope, int] = {(): 0}
        self._scope: Scope = ()
        self._layer = -1
        self._stream = Stream.OTHER

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return tuple(self._scopes)

    def begin_layer(self, index: int) -> None:
        self._note()
        self._layer = index

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        """What is emitted inside belongs to ``stream``."""
        self._note()
        self._stream = stream
        yield
        self._note()
        self._stream = Stream.OTHER

    @contextmanager
    def inside(self, loop: Scope) -> Iterator[None]:
        """What is emitted inside works on tiles that ``loop`` also names."""
        outer = self._scope
        self._enter(outer + loop)
        yield
        self._enter(outer)

    def records(self) -> tuple[tuple[int, Stream, int], ...]:
        """One a word that was emitted so far."""
        self._note()
        return tuple(self._records)

    def _enter(self, scope: Scope) -> None:
        self._note()
        self._scope = scope
        self._scopes.setdefault(scope, len(self._scopes))

    def _note(self) -> None:
        """The words since the last call belong to what is current."""
        record = (self._layer, self._stream, self._scopes[self._scope])
        missing = self._builder.position // WORD_BYTES - len(self._records)
        self._records.extend([record] * missing)
