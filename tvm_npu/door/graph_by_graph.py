"""Graphs of regions that are made one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from tvm_npu.codegen.graph import Graph

Source = TypeVar("Source")


class GraphByGraph(Mapping[str, Graph], Generic[Source]):
    """What ``make`` makes of ``sources``, by the same symbols, whenever it is read. Only the last
    is kept: each has weights of its own, and together they are as large as the model."""

    def __init__(self, sources: Mapping[str, Source], make: Callable[[Source], Graph]) -> None:
        self._sources, self._make = sources, make
        self._last: tuple[str, Graph] | None = None

    def __getitem__(self, symbol: str) -> Graph:
        if self._last is None or self._last[0] != symbol:
            self._last = None  # its weights go before others come
            self._last = symbol, self._make(self._sources[symbol])
        return self._last[1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)
