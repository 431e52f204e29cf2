"""A model as a chain of layers: what can be cut into consecutive pipeline stages."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.pipelines.errors import ChainError
from tvm_npu.sim.lazy import cached_property
from tvm_npu.sim.numbers import is_finite, is_whole
from tvm_npu.sim.texts import shown


def check_size(given: object, what: str) -> None:
    """ChainError for what counts nothing: fractions, NaN and numbers below 0."""
    if not is_whole(given):
        below = is_finite(given) and float(given) < 0  # type: ignore[arg-type]
        wrong = "below 0" if below else "no whole number of at least 0 and below 2^63"
        raise ChainError(f"{what} = {shown(given)} is {wrong}")


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
        if not (is_finite(self.weight) and self.weight >= 0):
            raise ChainError(
                f"layer {self.name}: weight {shown(self.weight)}; it must be finite and >= 0"
            )
        for key in ("macs", "parameter_bytes", "activation_bytes"):
            check_size(getattr(self, key), f"layer {self.name}: {key}")


@dataclass(frozen=True)
class LayerChain:
    """The layers of a model in the order in which a frame passes them; at least one.
    ``input_bytes``: what a frame brings to the first layer; 0 when nobody says."""

    model: str
    layers: tuple[ChainLayer, ...]
    input_bytes: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.layers, tuple) or not all(
            isinstance(layer, ChainLayer) for layer in self.layers
        ):
            raise ChainError(
                f"model {self.model}: layers are {shown(self.layers)}; a tuple of ChainLayer"
            )
        if not self.layers:
            raise ChainError(f"model {self.model} has no layers: nothing to cut into stages")
        check_size(self.input_bytes, f"model {self.model}: input_bytes")

    def __len__(self) -> int:
        return len(self.layers)

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """The layers' weights, in order."""
        return tuple(layer.weight for layer in self.layers)
