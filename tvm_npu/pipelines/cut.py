"""Cutting a model's primitives into a chain of layers, and any range of layers out as a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.door.dataflow import static
from tvm_npu.errors import CutError
from tvm_npu.pipelines.chain import ChainLayer, LayerChain
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.cut_points import bits, cut_points
from tvm_npu.pipelines.errors import ConfigurationError
from tvm_npu.pipelines.primitives import Primitive, PrimitiveGraph, Value
from tvm_npu.runtime.pipeline.artifact import TensorSpec
from tvm_npu.sim.lazy import cached_property


@dataclass(frozen=True)
class Stage:
    """``primitives`` (ascending numbers) as a unit of their own. ``taken`` and ``returned`` are all
    tensors that cross the cuts; those in both are carried along, and nobody computes them."""

    name: str
    graph: PrimitiveGraph
    primitives: tuple[int, ...]
    taken: Mapping[Value, TensorSpec]
    returned: Mapping[Value, TensorSpec]

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(self.taken.values())

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return tuple(self.returned.values())

    @property
    def read(self) -> Mapping[Value, TensorSpec]:
        """What the stage computes with, in the order in which primitives ask for it."""
        asked = (value for n in self.primitives for value in self.graph.primitives[n].reads)
        return {value: self.taken[value] for value in asked if value in self.taken}

    @property
    def computed(self) -> Mapping[Value, TensorSpec]:
        """What the stage computes, in order."""
        return {value: spec for value, spec in self.returned.items() if value not in self.taken}

    @property
    def regions(self) -> int:
        """How many of the primitives are NPU regions."""
        return sum(self.graph.primitives[number].is_region for number in self.primitives)


@dataclass(frozen=True)
class CutModel:
    """A model as primitives and where it may be cut.

    ``layers[k]`` are the numbers of layer k's primitives, ascending; ``chain`` is what searches
    see of it.
    """

    graph: PrimitiveGraph
    layers: tuple[tuple[int, ...], ...]
    chain: LayerChain

    def __len__(self) -> int:
        return len(self.layers)

    @cached_property
    def _prefix(self) -> str:
        """What names of tensors begin with that are no input of the model."""
        prefix = "cut"
        while any(name.startswith(prefix) for name, _ in self.graph.inputs):
            prefix += "_"
        return prefix

    def tensor(self, value: Value) -> TensorSpec:
        """Name (unique in the model), shape and type of a tensor."""
        if value.node < 0:
            name, _ = self.graph.inputs[value.position]
        else:
            name = f"{self._prefix}{value.node}"
            if value.position:
                name += f".{value.position}"
        type_ = self.graph.type_of(value)
        return TensorSpec(name, static(type_), type_.dtype)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The model's inputs that anything reads."""
        return tuple(self.tensor(value) for value in self._crossing(0))

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The model's outputs in its order; one that is two outputs is here twice."""
        return tuple(self.tensor(value) for value in self.graph.outputs)

    def _crossing(self, cut: int) -> tuple[Value, ...]:
        """Tensors that cross the cut in front of layer ``cut`` (behind the last: the outputs)."""
        if cut == len(self.layers):
            return tuple(dict.fromkeys(self.graph.outputs))
        return self.graph.crossing({n for layer in self.layers[:cut] for n in layer})

    def stage(self, first: int, end: int) -> Stage:
        """Layers ``first`` to ``end`` - 1 as a stage. CutError for another range."""
        if not 0 <= first < end <= len(self.layers):
            raise CutError(
                f"layers {first} to {end - 1} are no stage: the chain has layers 0 to "
                f"{len(self.layers) - 1}"
            )
        name = self.chain.layers[first].name
        if end > first + 1:
            name = f"{name}..{self.chain.layers[end - 1].name}"
        return Stage(
            name,
            self.graph,
            tuple(sorted(n for layer in self.layers[first:end] for n in layer)),
            {value: self.tensor(value) for value in self._crossing(first)},
            {value: self.tensor(value) for value in self._crossing(end)},
        )

    def stages(self, layers: Sequence[int]) -> tuple[Stage, ...]:
        """One stage for each number of layers. ConfigurationError unless they are all layers of
        the chain."""
        grouping = Configuration(tuple(layers), tuple(range(len(layers))))
        if grouping.layer_count != len(self):
            raise ConfigurationError(
                f"stages of {', '.join(map(str, layers))} layers hold {grouping.layer_count}; "
                f"the chain has {len(self)}"
            )
        return tuple(self.stage(first, end) for first, end in grouping.ranges())

    def in_output_order(self, tensors: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """What the last stage returned, by name -> the model's outputs in its order."""
        return [tensors[spec.name] for spec in self.outputs]


def cut_graph(graph: PrimitiveGraph, name: str) -> CutModel:
    """A model called ``name`` as a chain of layers."""
    reads = [{value.node for value in one.reads if value.node >= 0} for one in graph.primitives]
    cuts = cut_points(
        [sorted(nodes) for nodes in reads],
        [primitive.work.weight for primitive in graph.primitives],
        lambda before: graph.size_bytes(graph.crossing(set(bits(before)))),
    )
    layers = []
    done = 0
    for before in (*(cut.before for cut in cuts), (1 << len(graph.primitives)) - 1):
        layers.append(tuple(bits(before & ~done)))
        done |= before
    return CutModel(graph, tuple(layers), _chain(graph, layers, name))


def _chain(graph: PrimitiveGraph, layers: Sequence[tuple[int, ...]], model: str) -> LayerChain:
    names: dict[str, int] = {}
    found = []
    before: set[int] = set()
    for number, layer in enumerate(layers):
        before |= set(layer)
        primitives = [graph.primitives[n] for n in layer]
        name = _layer_name(primitives, number)
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:
            name = f"{name}#{names[name]}"
        last = number == len(layers) - 1
        behind = dict.fromkeys(graph.outputs) if last else graph.crossing(before)
        found.append(
            ChainLayer(
                name=name,
                weight=sum(primitive.work.weight for primitive in primitives),
                macs=sum(primitive.work.macs for primitive in primitives),
                parameter_bytes=sum(primitive.parameter_bytes for primitive in primitives),
                activation_bytes=graph.size_bytes(tuple(behind)),
                source=tuple(source for primitive in primitives for source in primitive.source),
            )
        )
    return LayerChain(model, tuple(found), graph.size_bytes(graph.crossing(set())))


def _layer_name(primitives: Sequence[Primitive], number: int) -> str:
    """The source name of the primitive with the most work, else its kind and the layer's number."""
    heaviest = max(primitives, key=lambda primitive: primitive.work.weight)
    if heaviest.source:
        return heaviest.source[0]
    kind = "npu" if heaviest.is_region else heaviest.work.kind or "layer"
    return f"{kind}_{number}"


def as_frame(tensors: Sequence[TensorSpec], arrays: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """``arrays`` by name in the types of ``tensors``. CutError for a missing name or a shape that
    is not the tensor's."""
    frame = {}
    for spec in tensors:
        if spec.name not in arrays:
            raise CutError(f"input {spec.name!r} is missing; given: {', '.join(arrays) or 'none'}")
        array = np.ascontiguousarray(arrays[spec.name], spec.dtype)
        if array.shape != spec.shape:
            raise CutError(f"input {spec.name!r} has shape {array.shape}, not {spec.shape}")
        frame[spec.name] = array
    return frame
