"""A model as a chain of layers: what can be cut into consecutive pipeline stages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from tvm_npu.pipelines.errors import ChainError


@dataclass(frozen=True)
class ChainLayer:
    """One unit of a chain, never cut: a layer, or parallel branches between two cuts.

    ``weight`` is the work of Pipe-Search's Equation 1 (convolution: H*W*C*R*S*K) or Equation 2
    (fully connected: H*W*C*F), the number of inputs for a pool, summed over the unit;
    ``activation_bytes`` is what crosses the cut behind the unit, skip tensors included.
    ``source`` names the operations of the model that the unit holds.
    """

    name: str
    weight: float
    macs: int
    parameter_bytes: int
    activation_bytes: int
    source: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise ChainError(f"layer {self.name}: weight {self.weight}; it must be finite and >= 0")
        for key in ("macs", "parameter_bytes", "activation_bytes"):
            if getattr(self, key) < 0:
                raise ChainError(f"layer {self.name}: {key} = {getattr(self, key)} is below 0")


@dataclass(frozen=True)
class LayerChain:
    """The layers of a model in the order in which a frame passes them; at least one.
    ``input_bytes``: what a frame brings to the first layer; 0 when nobody says."""

    model: str
    layers: tuple[ChainLayer, ...]
    input_bytes: int = 0

    def __post_init__(self) -> None:
        if not self.layers:
            raise ChainError(f"model {self.model} has no layers: nothing to cut into stages")
        if self.input_bytes < 0:
            raise ChainError(f"model {self.model}: input_bytes = {self.input_bytes} is below 0")

    def __len__(self) -> int:
        return len(self.layers)

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """The layers' weights, in order."""
        return tuple(layer.weight for layer in self.layers)
