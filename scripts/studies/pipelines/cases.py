"""Networks on platforms, with their proven optimum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from studies.harness.errors import StudyError
from studies.pipelines.chains import model_chain, synthetic_chain
from studies.pipelines.published import SYNTH_WEIGHTS
from tvm_npu.pipelines.chain import LayerChain
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.platform_file import load_platform
from tvm_npu.pipelines.search import (
    Enumeration,
    enumerate_space,
    exact_configuration,
    space_size,
)
from tvm_npu.pipelines.times import TimeTable, simulated_table

CHIPLETS = ("synthnet", "resnet50", "yolov3")
EDGE = ("vgg16", "alexnet", "resnet50-pools")
SYNTHETIC = tuple(SYNTH_WEIGHTS)
SOURCES = {
    "synthnet": ("synthnet", False),
    "resnet50": ("resnet50", False),
    "yolov3": ("darknet53", False),
    "vgg16": ("vgg16", True),
    "alexnet": ("alexnet", True),
    "resnet50-pools": ("resnet50", True),
}
"""Model of `tvm_npu.models`, and whether pools are layers. Shisha's YOLOv3 has 52 layers: those of
its backbone, Darknet-53."""
SYNTHETIC_MACS = 50_000_000
"""MACs of a unit of weight of Synth 1-3; times and throughputs scale with it, nothing else."""
CHIPLET_PLATFORMS = tuple(f"shisha-c{number}" for number in range(1, 6))
EDGE_PLATFORMS = tuple(f"tx2-4core-setting{number}" for number in range(1, 5))
SYNTHETIC_PLATFORMS = tuple(f"tx2-6core-setting{number}" for number in (1, 3))
ENUMERABLE = 5_000_000
"""Spaces up to this size are enumerated; beyond, dynamic programming proves the optimum."""


@dataclass(frozen=True)
class Case:
    """A network on a platform."""

    chain: LayerChain
    platform: Platform

    @property
    def model(self) -> str:
        return self.chain.model

    @cached_property
    def table(self) -> TimeTable:
        return simulated_table(self.chain, self.platform)

    @cached_property
    def space(self) -> int:
        return space_size(len(self.chain), self.platform)

    @cached_property
    def optimum(self) -> tuple[Configuration, float]:
        """Configuration and bottleneck in seconds, by dynamic programming. Raises StudyError
        when enumeration, where it ends, finds another bottleneck."""
        found = exact_configuration(self.table, self.platform)
        if self.enumeration is not None and self.enumeration.bottleneck_s != found[1]:
            raise StudyError(
                f"{self.model} on {self.platform.name}: dynamic programming finds "
                f"{found[1]} s, enumeration {self.enumeration.bottleneck_s} s"
            )
        return found

    @cached_property
    def enumeration(self) -> Enumeration | None:
        """The whole space; None where it is too large."""
        if self.space > ENUMERABLE:
            return None
        return enumerate_space(self.table, self.platform)


@lru_cache(maxsize=32)
def chain_of(model: str) -> LayerChain:
    if model in SYNTH_WEIGHTS:
        return synthetic_chain(model, SYNTH_WEIGHTS[model], SYNTHETIC_MACS)
    source, pools = SOURCES[model]
    return model_chain(source, pools, model)


@lru_cache(maxsize=256)
def case_of(model: str, platform: str) -> Case:
    return Case(chain_of(model), load_platform(platform))


def case_names(models: Sequence[str]) -> list[tuple[str, str]]:
    """Every network of ``models`` on the platforms of its paper."""
    groups = (
        (CHIPLETS, CHIPLET_PLATFORMS),
        (EDGE, EDGE_PLATFORMS),
        (SYNTHETIC, SYNTHETIC_PLATFORMS),
    )
    return [
        (model, platform)
        for names, platforms in groups
        for model in names
        if model in models
        for platform in platforms
    ]


def best_cut(table: TimeTable, places: tuple[int, ...]) -> float:
    """Least bottleneck in seconds of all cuts into stages on exactly these places in this order."""
    layers = table.layer_count
    best = [0.0] + [float("inf")] * layers
    for stage, place in enumerate(places):
        prefix = table.prefix_s[:, place]
        row = [float("inf")] * (layers + 1)
        for first in range(stage, layers):
            transfer = 0.0
            if stage:
                before = places[stage - 1]
                crossing = table.crossing_bytes[first - 1] * table.byte_s[before, place]
                transfer = float(table.latency_s[before, place] + crossing)
            for end in range(first + 1, layers + 1):
                value = max(best[first], float(prefix[end] - prefix[first]) + transfer)
                row[end] = min(row[end], value)
        best = row
    return best[layers]
