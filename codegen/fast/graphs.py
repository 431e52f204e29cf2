"""Graphs whose convolutions are ready to run fast; everything else runs by its operator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from tvm_npu.codegen.fast.convolutions import Run, chain, fast_fixed, fast_float
from tvm_npu.codegen.graph import Array, FixedGraph, Graph, Layer
from tvm_npu.codegen.reference import stream_fixed, stream_float


def _as_it_is(arrays: Sequence[Array]) -> tuple[Array, ...]:
    """A layer that the one in front has done."""
    return tuple(arrays)


class FastFixed:
    """`run_fixed` of one graph: its outputs. One thread at a time."""

    def __init__(self, fixed: FixedGraph) -> None:
        self.fixed = fixed
        ready = {layer.outputs[0]: fast_fixed(layer, fixed) for layer in fixed.layers}
        self._ready = {tensor: run for tensor, run in ready.items() if run is not None}

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Raises as `run_fixed`."""
        tensors = stream_fixed(self.fixed, inputs, instead=self._ready)
        return {name: values for name, values in tensors if name in self.fixed.outputs}


class FastFloat:
    """`run_float` of one graph: its outputs. One thread at a time."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._ready: dict[str, Run] = {}
        readers: dict[str, list[Layer]] = defaultdict(list)
        for layer in graph.layers:
            for tensor in layer.inputs:
                readers[tensor].append(layer)
        for layer in graph.layers:
            run = layers = None
            if layer.outputs[0] not in self._ready:
                layers = chain(layer, readers, graph.outputs)
                run = fast_float(layers, graph)
            if run is not None and layers is not None:
                self._ready[layer.output] = run
                self._ready |= {done.output: _as_it_is for done in layers[1:]}

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Raises as `run_float`."""
        tensors = stream_float(self.graph, inputs, instead=self._ready)
        return {name: values for name, values in tensors if name in self.graph.outputs}
