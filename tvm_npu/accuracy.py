"""How often a model on the NPU is right, how far its outputs are from float, and which layer is to
blame.

Regions run by the reference, which every simulator equals to the bit, so that hundreds of images
take seconds; the simulator runs the first ones and must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.calibration import Sample
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.passes.layer_errors import LayerError, LayerErrors, ratio_db
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.program.parts import as_batch
from tvm_npu.codegen.reference import run_fixed, run_float
from tvm_npu.door.models import PartitionedModel
from tvm_npu.errors import AccuracyError
from tvm_npu.runtime.session import Session
from tvm_npu.sim.frames import Tabular

LOW_SQNR_DB = 15.0
"""Below this, outputs have little to do with those of float."""
SCHEMA = "tvm-npu accuracy 1"
Runners = Mapping[str, Any]


@dataclass(frozen=True)
class Labelled:
    """One sample of the model's inputs, the right class of each of its images, if known, and the
    outputs that the model has for it in float, if known."""

    sample: Sample
    labels: tuple[int, ...] | None = None
    wanted: tuple[NDArray[Any], ...] | None = None


@dataclass(frozen=True)
class RegionErrors:
    """The layers of one region, worst own error first."""

    region: str
    layers: tuple[LayerError, ...]


@dataclass(frozen=True)
class Accuracy(Tabular):
    """Counts of images. ``sqnr_db`` is the signal to noise of the worst output against float,
    ``agreement`` counts images with the class that float gives; classes are those of the first
    output. ``cycles`` is the simulator's count for one inference (None: not simulated),
    ``simulated`` how many samples it agreed on."""

    images: int
    labelled: int
    top1_float: int
    top1_npu: int
    top5_float: int
    top5_npu: int
    agreement: int
    sqnr_db: float
    simulated: int
    cycles: float | None
    regions: tuple[RegionErrors, ...] = ()

    shown_columns = ("layer", "kind", "own_db", "accumulated_db", "clipped_share", "advice")

    def flat_rows(self) -> list[dict[str, Any]]:
        """A row for each layer, worst own error first in each region; ratios as in `to_dict`."""
        return [
            {"region": region["region"], **layer}
            for region in self.to_dict()["regions"]
            for layer in region["layers"]
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values; ratios that are infinite (nothing differs) are None."""
        values = asdict(self)
        values["sqnr_db"] = _finite(self.sqnr_db)
        for region in values["regions"]:
            for layer in region["layers"]:
                layer["own_db"] = _finite(layer["own_db"])
                layer["accumulated_db"] = _finite(layer["accumulated_db"])
        return {"schema": SCHEMA, **values}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


class _Float:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, arrays: list[Any], /) -> Sequence[Any]:
        graph = self.graph
        tensors = run_float(graph, _feed(arrays, graph.inputs, graph.shapes))
        return [tensors[name] for name in graph.outputs]


class _Fixed:
    """By the reference; with ``errors`` layer by layer, with ``session`` also by the simulator."""

    def __init__(self, symbol: str, fixed: FixedGraph, errors: LayerErrors | None) -> None:
        self.symbol, self.fixed, self.errors = symbol, fixed, errors
        self.session: Session | None = None
        self.cycles = 0.0

    def run(self, arrays: list[Any], /) -> Sequence[Any]:
        fixed = self.fixed
        feed = _feed(arrays, fixed.inputs, fixed.shapes)
        integers = {
            name: fixed.scales[name].quantize(values, fixed.width_of(name))
            for name, values in feed.items()
        }
        tensors = run_fixed(fixed, integers)
        if self.errors is not None:
            self.errors.add(feed)
        if self.session is not None:
            self._simulate([integers[name] for name in fixed.inputs], tensors)
        return [fixed.scales[name].dequantize(tensors[name]) for name in fixed.outputs]

    def _simulate(self, inputs: list[Any], tensors: Mapping[str, Any]) -> None:
        assert self.session is not None
        outputs = self.session.run_fixed(inputs)
        for name, found in zip(self.fixed.outputs, outputs, strict=True):
            wrong = int((found != tensors[name].reshape(found.shape)).sum())
            if wrong:
                raise AccuracyError(
                    f"region {self.symbol!r}: {wrong} of {found.size} elements of output {name!r} "
                    "differ between simulator and reference; this is a fault of tvm-npu"
                )
        assert self.session.statistics is not None
        self.cycles = self.session.statistics.cycles


def _feed(
    arrays: list[Any], names: Sequence[str], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, NDArray[np.float32]]:
    return {
        name: as_batch(np.asarray(array, np.float32), shapes[name])
        for name, array in zip(names, arrays, strict=True)
    }


@dataclass
class _Counts:
    images: int = 0
    labelled: int = 0
    top1: list[int] = field(default_factory=lambda: [0, 0])
    top5: list[int] = field(default_factory=lambda: [0, 0])
    agreement: int = 0
    powers: list[list[float]] = field(default_factory=list)

    def add(self, results: list[list[NDArray[Any]]], labels: tuple[int, ...] | None) -> None:
        """``results`` are the outputs of float and of the NPU."""
        if not self.powers:
            self.powers = [[0.0, 0.0] for _ in results[0]]
        for index, (wanted, found) in enumerate(zip(*results, strict=True)):
            real = wanted.astype(np.float64)
            self.powers[index][0] += float(np.square(real).sum())
            self.powers[index][1] += float(np.square(found - real).sum())
        scores = [outputs[0].reshape(len(outputs[0]), -1) for outputs in results]
        ranked = [np.argsort(-one, axis=1, kind="stable")[:, :5] for one in scores]
        self.images += len(ranked[0])
        self.agreement += int((ranked[0][:, 0] == ranked[1][:, 0]).sum())
        if labels is None:
            return
        if len(labels) != len(ranked[0]):
            raise AccuracyError(f"{len(labels)} labels for a sample of {len(ranked[0])} images")
        right = np.array(labels)[:, None]
        self.labelled += len(labels)
        for which, classes in enumerate(ranked):
            self.top1[which] += int((classes[:, :1] == right).sum())
            self.top5[which] += int((classes == right).sum())


class _Given:
    """The samples, one by one; ``last`` is the one that was handed out last."""

    def __init__(self, samples: Iterable[Labelled]) -> None:
        self._rest = iter(samples)
        self.last = next(self._rest, Labelled({}))
        self.has_outputs = self.last.wanted is not None

    def samples(self) -> Iterator[Sample]:
        while self.last.sample:
            yield self.last.sample
            self.last = next(self._rest, Labelled({}))


def measure(
    model: PartitionedModel,
    samples: Iterable[Labelled],
    *,
    layer_samples: int = 8,
    simulated: int = 1,
    progress: Callable[[int], None] = lambda images: None,
) -> Accuracy:
    """Runs ``model`` on all samples, in float (unless the first sample says its outputs; then each
    must) and as the NPU computes it.

    The errors of layers are those over the first ``layer_samples`` samples; the simulator runs the
    first ``simulated`` ones. ``progress`` is called with the number of images so far.
    Raises AccuracyError without samples, and where the simulator differs from the reference.
    """
    regions = {symbol: model.compared(symbol) for symbol in model.symbols}
    errors = {symbol: LayerErrors(one.graph, one.fixed) for symbol, one in regions.items()}
    floats = {
        symbol: _Float(model.door.region(model.mod, symbol).graph()) for symbol in regions
    }
    fixed = {symbol: _Fixed(symbol, one.fixed, errors[symbol]) for symbol, one in regions.items()}
    if simulated:
        for symbol, runner in fixed.items():
            runner.session = Session(Program.from_bytes(model.program(symbol)))
    counts, given = _Counts(), _Given(samples)
    runners: list[Mapping[str, Any]] = [fixed] if given.has_outputs else [floats, fixed]
    number = 0
    for number, results in enumerate(model.run(runners, given.samples()), 1):
        if given.has_outputs:
            if given.last.wanted is None:
                raise AccuracyError(f"sample {number} says no outputs; the first one does")
            results = [list(given.last.wanted), *results]
        counts.add(results, given.last.labels)
        for runner in fixed.values():
            if number >= simulated:
                runner.session = None
            if number >= layer_samples:
                runner.errors = None
        progress(counts.images)
    if not counts.images:
        raise AccuracyError("there are no images; at least 1 is needed")
    found = []
    if layer_samples:
        found = [RegionErrors(symbol, tuple(one.worst_first())) for symbol, one in errors.items()]
    return Accuracy(
        counts.images, counts.labelled, counts.top1[0], counts.top1[1], counts.top5[0],
        counts.top5[1], counts.agreement, min(ratio_db(*powers) for powers in counts.powers),
        min(simulated, number), sum(one.cycles for one in fixed.values()) if simulated else None,
        tuple(found),
    )  # fmt: skip
