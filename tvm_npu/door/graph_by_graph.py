"""Graphs of regions that are made one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from tvm_npu.codegen.freed_memory import array_bytes, give_back
from tvm_npu.codegen.graph import Graph

Source = TypeVar("Source")

KEPT_BYTES = 1 << 23
"""Weights of the graphs that stay: calibration reads every graph once a sample, and making them
anew takes longer than small regions compute."""


class GraphByGraph(Mapping[str, Graph], Generic[Source]):
    """What ``make`` makes of ``sources``, by the same symbols, whenever it is read. The first ones
    whose weights are together no more than ``kept_bytes`` are kept, and of the others the last:
    each has weights of its own, and together they are as large as the model."""

    def __init__(
        self, sources: Mapping[str, Source], make: Callable[[Source], Graph],
        kept_bytes: int = KEPT_BYTES,
    ) -> None:  # fmt: skip
        self._sources, self._make = sources, make
        self._room = kept_bytes
        self._kept: dict[str, Graph] = {}
        self._last: tuple[str, Graph] | None = None

    def __getitem__(self, symbol: str) -> Graph:
        if symbol in self._kept:
            return self._kept[symbol]
        if self._last is None or self._last[0] != symbol:
            self.let_go()  # its weights go before others come
            graph = self._make(self._sources[symbol])
            size = array_bytes(graph.layers)
            if size <= self._room:
                self._room -= size
                self._kept[symbol] = graph
                return graph
            self._last = symbol, graph
        return self._last[1]

    def let_go(self) -> None:
        """The last one that does not stay goes."""
        if self._last is not None:
            self._last = None
            give_back()

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)
