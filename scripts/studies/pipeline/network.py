"""A network of the benchmark: its chain, its stages as libraries, stock TVM's library, frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studies.pipeline.stock import finish_stock, start_stock
from tvm_npu.door import door, import_onnx
from tvm_npu.models import build
from tvm_npu.pipelines.chain import LayerChain
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.stage_compiler import CpuTarget, StageCompiler, host_target
from tvm_npu.runtime.pipeline import Deployment, Place, TensorSpec

Frame = dict[str, NDArray[np.generic]]
IMAGES = 16
"""Different frames; neighbours in a stream always differ."""


@dataclass(frozen=True)
class Network:
    """Two stages at most, each with one thread, for cores of one kind. ``stock`` is the library of
    plain ``relay.build`` for the same kind of core, None when it was not asked for."""

    name: str
    chain: LayerChain
    compiler: StageCompiler
    target: CpuTarget
    stock: Path | None
    frames: tuple[Frame, ...]

    def deployment(self, configuration: Configuration) -> Deployment:
        """Compiles what is not compiled yet."""
        targets = (self.target,) * (max(configuration.places) + 1)
        return Deployment(self.compiler.stages(configuration, targets), configuration.places)

    def serial(self, place: int) -> Deployment:
        """All layers on one place."""
        return self.deployment(Configuration((len(self.chain),), (place,)))

    def two_stages(self) -> Iterator[Configuration]:
        """Every contiguous cut, both orders of two places."""
        count = len(self.chain)
        for cut in range(1, count):
            for order in permutations((0, 1)):
                yield Configuration((cut, count - cut), order)

    def frame(self, number: int) -> Frame:
        return self.frames[number % len(self.frames)]


def make_network(name: str, folder: Path, *, with_stock: bool = True) -> Network:
    """Imports and cuts a model of `tvm_npu.models`; libraries go to ``folder``."""
    target = host_target(door())
    stock = folder / f"{name}-stock.so" if with_stock else None
    compiling = None if stock is None else start_stock(name, target.target, stock)
    try:
        model = import_onnx(build(name), {})
        cut = model.door.cut(model.mod, model.params, target=target.target, name=name)
        compiler = StageCompiler(model.door, cut, folder / name)
        inputs = compiler.serial(target).inputs
        if compiling is not None:
            finish_stock(compiling, name)
    except BaseException:
        if compiling is not None:
            compiling.kill()
            compiling.wait()
        raise
    return Network(name, cut.chain, compiler, target, stock, _frames(inputs))


def _frames(inputs: tuple[TensorSpec, ...]) -> tuple[Frame, ...]:
    generator = np.random.default_rng(0)
    return tuple(
        {
            spec.name: generator.standard_normal(spec.shape, np.float32).astype(spec.dtype)
            for spec in inputs
        }
        for _ in range(IMAGES)
    )


def core_places(cores: tuple[int, int]) -> tuple[Place, Place]:
    """A place a core."""
    return Place(f"core{cores[0]}", cores[:1]), Place(f"core{cores[1]}", cores[1:])


def shown(configuration: Configuration, cores: tuple[int, int]) -> str:
    """``10+12 on cores 0, 1``."""
    layers = "+".join(map(str, configuration.stages))
    places = ", ".join(str(cores[place]) for place in configuration.places)
    return f"{layers} on core{'s' if len(configuration) > 1 else ''} {places}"
