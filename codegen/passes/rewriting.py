"""What graph rewrites are made of: who reads and writes each tensor; layers put in place."""

from __future__ import annotations

from collections.abc import Mapping

from tvm_npu.codegen.graph import Graph, Layer


class Uses:
    """Who writes and who reads each tensor of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._outputs = frozenset(graph.outputs)
        self._producers = {tensor: layer for layer in graph.layers for tensor in layer.outputs}
        self._readers: dict[str, list[Layer]] = {}
        for layer in graph.layers:
            for tensor in layer.inputs:
                self._readers.setdefault(tensor, []).append(layer)

    def producer(self, tensor: str) -> Layer | None:
        return self._producers.get(tensor)

    def readers(self, tensor: str) -> list[Layer]:
        return self._readers.get(tensor, [])

    def sole_reader(self, tensor: str) -> Layer | None:
        """The layer that alone reads the tensor, once, while no graph output needs it."""
        readers = self.readers(tensor)
        return readers[0] if len(readers) == 1 and tensor not in self._outputs else None

    def follower(self, layer: Layer) -> Layer | None:
        """The sole reader of all that ``layer`` makes; None where it makes several tensors."""
        return self.sole_reader(layer.output) if len(layer.outputs) == 1 else None


def swap(graph: Graph, changes: Mapping[Layer, Layer | None]) -> Graph:
    """``graph`` with some layers replaced in place, or left out (None)."""
    layers = (changes.get(layer, layer) for layer in graph.layers)
    return graph.with_layers(layer for layer in layers if layer is not None)
