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
from tvm_npu.codegen.program.parts import as_batches
from tvm_npu.codegen.reference import run_fixed, run_float, run_rounded
from tvm_npu.door.models import PartitionedModel
from tvm_npu.errors import AccuracyError
from tvm_npu.runtime.session import Session
from tvm_npu.sim.frames import Tabular

LOW_SQNR_DB = 15.0
"""Below this, outputs have little to do with those of float."""
STEP_TOLERANCE = 1.001
"""Real numbers that are one step apart may be a little more in float32."""
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
class BesideSource:
    """A quantized model on the NPU beside its own arithmetic (real numbers, rounded where the model
    says scales): the share of the elements of regions' outputs that are at most one step of the
    model apart, counts of right classes of the source, and of images with the same class."""

    within_one_step: float
    top1_source: int
    agreement: int


@dataclass(frozen=True)
class Accuracy(Tabular):
    """Counts of images. ``sqnr_db`` is the signal to noise of the worst output against float, where
    the signal of an output of integers is its distance from their mean; ``agreement`` counts images
    with the class that float gives; classes are those of the first output. ``cycles`` is the
    simulator's count for one inference (None: not simulated), ``simulated`` how many samples it
    agreed on. ``within_one`` is the share of the elements of outputs of integers (None: there are
    none) that differ from float by at most 1. ``source`` is there for models that say scales;
    float then means real numbers that regions do not round."""

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
    source: BesideSource | None = None
    within_one: float | None = None

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


class _Rounded:
    """As the model says itself; ``made`` holds the last outputs."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made: dict[str, NDArray[np.float32]] = {}

    def run(self, arrays: list[Any], /) -> Sequence[Any]:
        graph = self.graph
        tensors = run_rounded(graph, _feed(arrays, graph.inputs, graph.shapes))
        self.made = {name: tensors[name] for name in graph.outputs}
        return list(self.made.values())

    def near(self, found: Mapping[str, NDArray[Any]]) -> tuple[int, int]:
        """How many elements of outputs with scales there are, and how many of them are at most one
        step away in ``found``."""
        count = near = 0
        for name, wanted in self.made.items():
            scale = self.graph.scales.get(name)
            if scale is not None:
                count += wanted.size
                off = np.abs(found[name].reshape(wanted.shape) - wanted.astype(np.float64))
                near += int((off <= STEP_TOLERANCE * scale.steps.max()).sum())
        return count, near


class _Fixed:
    """By the reference; with ``errors`` layer by layer, with ``session`` also by the simulator."""

    def __init__(self, symbol: str, fixed: FixedGraph, errors: LayerErrors | None) -> None:
        self.symbol, self.fixed, self.errors = symbol, fixed, errors
        self.session: Session | None = None
        self.made: dict[str, NDArray[np.float32]] = {}
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
        self.made = {n: fixed.scales[n].dequantize(tensors[n]) for n in fixed.outputs}
        return list(self.made.values())

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
    return as_batches([np.asarray(one, np.float32) for one in arrays], names, shapes)


@dataclass
class _Power:
    """Of one output: sums over its elements."""

    square: float = 0.0
    total: float = 0.0
    noise: float = 0.0
    count: int = 0
    has_zero: bool = True

    def add(self, wanted: NDArray[Any], found: NDArray[Any]) -> None:
        real = wanted.astype(np.float64)
        self.square += float(np.square(real).sum())
        self.total += float(real.sum())
        self.noise += float(np.square(found - real).sum())
        self.count += real.size
        self.has_zero = wanted.dtype.kind == "f"

    @property
    def ratio_db(self) -> float:
        """Of integers nobody says here which one means zero; they are taken from their mean."""
        offset = 0.0 if self.has_zero else self.total * self.total / self.count
        return ratio_db(self.square - offset, self.noise)


@dataclass
class _Counts:
    """The first of all results are those of float, the last those of the NPU; a quantized model's
    own stand between them."""

    images: int = 0
    labelled: int = 0
    top1: list[int] = field(default_factory=lambda: [0, 0, 0])
    top5: list[int] = field(default_factory=lambda: [0, 0, 0])
    agreement: list[int] = field(default_factory=lambda: [0, 0, 0])
    powers: list[_Power] = field(default_factory=list)
    elements: int = 0
    near: int = 0
    whole: int = 0
    whole_near: int = 0

    def add(self, results: list[list[NDArray[Any]]], labels: tuple[int, ...] | None) -> None:
        if not self.powers:
            self.powers = [_Power() for _ in results[0]]
        for power, wanted, found in zip(self.powers, results[0], results[-1], strict=True):
            power.add(wanted, found)
            if wanted.dtype.kind in "iu":
                self.whole += wanted.size
                self.whole_near += int((np.abs(found - wanted.astype(np.float64)) <= 1).sum())
        scores = [outputs[0].reshape(len(outputs[0]), -1) for outputs in results]
        ranked = [
            np.argsort(-one.astype(np.float64), axis=1, kind="stable")[:, :5] for one in scores
        ]
        self.images += len(ranked[0])
        for which, classes in enumerate(ranked):
            self.agreement[which] += int((classes[:, 0] == ranked[-1][:, 0]).sum())
        if labels is None:
            return
        if len(labels) != len(ranked[0]):
            raise AccuracyError(f"{len(labels)} labels for a sample of {len(ranked[0])} images")
        right = np.array(labels)[:, None]
        self.labelled += len(labels)
        for which, classes in enumerate(ranked):
            self.top1[which] += int((classes[:, :1] == right).sum())
            self.top5[which] += int((classes == right).sum())

    def result(
        self,
        is_quantized: bool,
        simulated: int,
        cycles: float | None,
        regions: tuple[RegionErrors, ...],
    ) -> Accuracy:
        npu, source = 1, None
        if is_quantized:
            npu, share = 2, self.near / self.elements if self.elements else 1.0
            source = BesideSource(share, self.top1[1], self.agreement[1])
        return Accuracy(
            self.images, self.labelled, self.top1[0], self.top1[npu], self.top5[0],
            self.top5[npu], self.agreement[0], min(power.ratio_db for power in self.powers),
            simulated, cycles, regions, source,
            self.whole_near / self.whole if self.whole else None,
        )  # fmt: skip


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
    graphs = {symbol: model.region(symbol).graph() for symbol in regions}
    errors = {
        symbol: LayerErrors(one.graph, one.fixed, graphs[symbol].scales)
        for symbol, one in regions.items()
    }
    floats = {symbol: _Float(graph) for symbol, graph in graphs.items()}
    rounded = {symbol: _Rounded(graph) for symbol, graph in graphs.items()}
    fixed = {symbol: _Fixed(symbol, one.fixed, errors[symbol]) for symbol, one in regions.items()}
    if simulated:
        for symbol, runner in fixed.items():
            runner.session = Session(Program.from_bytes(model.program(symbol)))
    counts, given = _Counts(), _Given(samples)
    is_quantized = any(graph.scales for graph in graphs.values())
    runners: list[Mapping[str, Any]] = [] if given.has_outputs else [floats]
    runners += [rounded, fixed] if is_quantized else [fixed]
    number = 0
    for number, results in enumerate(model.run(runners, given.samples()), 1):
        if given.has_outputs:
            if given.last.wanted is None:
                raise AccuracyError(f"sample {number} says no outputs; the first one does")
            results = [list(given.last.wanted), *results]
        counts.add(results, given.last.labels)
        for symbol, one in rounded.items() if is_quantized else ():
            elements, near = one.near(fixed[symbol].made)
            counts.elements, counts.near = counts.elements + elements, counts.near + near
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
    cycles = sum(one.cycles for one in fixed.values()) if simulated else None
    return counts.result(is_quantized, min(simulated, number), cycles, tuple(found))
