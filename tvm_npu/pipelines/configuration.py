"""A stage configuration: how many consecutive layers each stage has and where it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm_npu.pipelines.errors import ConfigurationError
from tvm_npu.sim.numbers import is_whole
from tvm_npu.sim.texts import shown


@dataclass(frozen=True)
class Configuration:
    """``stages``: layers of each stage, contiguous and in order, each at least 1;
    ``places``: index of the execution place of each stage, all different."""

    stages: tuple[int, ...]
    places: tuple[int, ...]

    def __post_init__(self) -> None:
        for key in ("stages", "places"):
            if not isinstance(getattr(self, key), tuple):
                raise ConfigurationError(
                    f"{key} of a configuration are {shown(getattr(self, key))}; a tuple of whole "
                    "numbers"
                )
        if not self.stages:
            raise ConfigurationError("a configuration needs at least one stage; this one has none")
        for stage, layers in enumerate(self.stages):
            if not is_whole(layers, 1):
                raise ConfigurationError(f"stage {stage} has {shown(layers)} layers; at least 1")
        if len(self.places) != len(self.stages):
            raise ConfigurationError(
                f"{len(self.stages)} stages on {len(self.places)} places; one place for each stage"
            )
        seen: dict[int, int] = {}
        for stage, place in enumerate(self.places):
            if not is_whole(place):
                raise ConfigurationError(f"stage {stage} is on place {shown(place)}; at least 0")
            if place in seen:
                raise ConfigurationError(
                    f"stages {seen[place]} and {stage} are both on place {place}; "
                    "a place holds one stage"
                )
            seen[place] = stage

    def __len__(self) -> int:
        return len(self.stages)

    def __str__(self) -> str:
        """``[5, 8] on (1, 0)``: layers of each stage, then their places."""
        layers = ", ".join(map(str, self.stages))
        places = ", ".join(map(str, self.places))
        return f"[{layers}] on ({places})"

    @property
    def layer_count(self) -> int:
        return sum(self.stages)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """(first layer, layer after the last) of each stage, in order."""
        first = 0
        for layers in self.stages:
            yield first, first + layers
            first += layers

    def validate(self, layer_count: int, place_count: int) -> None:
        """Raise ConfigurationError unless the stages cover exactly ``layer_count`` layers and every
        place is one of ``place_count``."""
        if self.layer_count != layer_count:
            raise ConfigurationError(
                f"the stages of {self} hold {self.layer_count} layers; the chain has {layer_count}"
            )
        for stage, place in enumerate(self.places):
            if place >= place_count:
                raise ConfigurationError(
                    f"stage {stage} is on place {place}; "
                    f"the platform has places 0 to {place_count - 1}"
                )
