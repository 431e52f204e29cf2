"""Models ready for sweeps: the float meaning of their NPU regions, calibrated once, on random input
or the first of their images.

All machines of a kind compute the same regions, so that their figures can be compared, or say why
they cannot (`preparations`).
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tvm_npu.calibration import Sample
from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.passes.calibrate import Ranges
from tvm_npu.errors import AccuracyError, CalibrationError
from tvm_npu.sim.bounded_files import read_bounded
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.lazy import cached_property
from tvm_npu.sim.machine_parts import Precision
from tvm_npu.sweep.images import ModelImages
from tvm_npu.sweep.spec import SweepError

if TYPE_CHECKING:
    from tvm_npu.door.models import ImportedModel, PartitionedModel
    from tvm_npu.door.region import MarkedRegion
    from tvm_npu.report.placement import RegionReport

Array = NDArray[Any]

MOST_IMAGES = 1 << 32
"""In a run of a model; a tensor has no larger extent."""
MOST_MACS = 1 << 60
"""Of a region in a run."""


class NothingRunsError(SweepError):
    """No operator of a model runs on a machine."""


@dataclass(frozen=True)
class SweptRegion:
    """A region's float graph, its ranges, and one image of its inputs [1, *shape]. A run of the
    model takes it ``images`` times, and has ``macs`` in it: those of its operators, for all images,
    as profiles count them (`report.model_macs`)."""

    graph: Graph
    ranges: Ranges
    inputs: tuple[Array, ...]
    images: int
    macs: int

    def __post_init__(self) -> None:
        _check_images("region", self.images)
        if not 0 <= self.macs <= MOST_MACS:
            raise ValueError(f"a region has {self.macs} MACs")


@dataclass(frozen=True)
class SweptModel:
    """``digest`` is of the model's bytes and of what partitioning and calibration depend on; a run
    takes ``images``."""

    name: str
    digest: str
    regions: tuple[SweptRegion, ...]
    macs: int
    npu_mac_share: float
    images: int

    def __post_init__(self) -> None:
        _check_images("model", self.images)


def _check_images(what: str, images: int) -> None:
    if not 1 <= images <= MOST_IMAGES:
        raise ValueError(f"a {what} has {images} images")


class _Keeper:
    """Runs a region in float and keeps the first image of its first inputs, and their number."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.inputs: tuple[Array, ...] | None = None
        self.images = 1

    def region(self, marked: MarkedRegion, report: RegionReport) -> SweptRegion:
        return SweptRegion(
            self.graph, marked.ranges, self.inputs or (), self.images, report.macs
        )

    def run(self, arrays: list[Any]) -> list[Array]:
        from tvm_npu.codegen.program.parts import as_batches
        from tvm_npu.codegen.reference import run_float

        graph = self.graph
        given = as_batches(arrays, graph.inputs, graph.shapes)
        if self.inputs is None:
            self.inputs = tuple(one[:1].copy() for one in given.values())
            self.images = max((len(one) for one in given.values()), default=1)
        tensors = run_float(graph, given)
        return [tensors[name] for name in graph.outputs]


def model_bytes(name: str) -> bytes:
    """The ONNX file called ``name``, or the network of `tvm_npu.models`. Raises SweepError."""
    if os.path.isfile(name):
        return read_bounded(name)
    from tvm_npu import models

    if name not in models.names():
        raise SweepError(
            f"model {name!r}: neither a file nor one of {', '.join(models.names())}"
        )
    content: bytes = models.build(name).SerializeToString()
    return content


def onnx_model(name: str, content: bytes) -> Any:
    """The onnx.ModelProto in ``content``. Raises SweepError for what is none."""
    import onnx

    try:
        return onnx.load_from_string(content)
    except Exception as error:  # protobuf's own error types differ between its backends
        raise SweepError(
            f"model {name!r}: {len(content)} bytes that are no ONNX model ({error}); models of a "
            "sweep are ONNX files or names of tvm_npu.models"
        ) from error


def machine_class(
    machine: MachineDescription, precision: Precision
) -> tuple[Hashable, ...]:
    """Machines that differ in it share no prepared models: kind, precision, requantize step, and
    the layers that it has code for."""
    made = backend_of(machine).made(machine)
    names = tuple(sorted(f"{one.__module__}.{one.__qualname__}" for one in made))
    return machine.isa, precision, machine.requantization(precision), names


@dataclass(frozen=True)
class ModelSource:
    """What a SweptModel is made from; without ``images`` ranges come from random input."""

    name: str
    content: bytes
    machine: MachineDescription
    precision: Precision
    images: ModelImages | None = None

    @cached_property
    def digest(self) -> str:
        """Of the model's bytes and of what partitioning and calibration depend on, but for what
        they ask of the machine's memories (`preparations`)."""
        from tvm_npu.sweep.store import code_version

        machine, precision = self.machine, self.precision
        facts = (
            code_version(), *machine_class(machine, precision),
            None if self.images is None else self.images.digest,
        )  # fmt: skip
        return hashlib.sha256(repr(facts).encode() + self.content).hexdigest()

    def partitioned(self) -> tuple[ImportedModel, PartitionedModel]:
        """Raises SweepError where no operator runs on the machine, and for images that do not fit
        the model."""
        from tvm_npu.door.models import import_onnx
        from tvm_npu.errors import NothingOffloadedWarning, SyntheticCalibrationWarning
        from tvm_npu.options import make_options

        imported = import_onnx(onnx_model(self.name, self.content), {})
        samples = None if self.images is None else list(self._calibration(imported))
        with warnings.catch_warnings():
            for said_here in (SyntheticCalibrationWarning, NothingOffloadedWarning):
                warnings.simplefilter("ignore", said_here)
            options = make_options(self.machine, precision=self.precision)
            partitioned = imported.partition(options, samples)
        report = partitioned.report
        if not partitioned.symbols:
            first = report.refusals[0] if report.refusals else "it has no operators"
            raise NothingRunsError(
                f"model {self.name!r}: no operator runs on {self.machine.name!r}: {first}"
            )
        return imported, partitioned

    def sample(self, imported: ImportedModel) -> Sample:
        """What designs are simulated on: the first image, or random input."""
        from tvm_npu.calibration import synthetic

        if self.images is None:
            return next(iter(synthetic(imported.inputs, seed=1, count=1)))
        return next(self._calibration(imported))

    def _calibration(self, imported: ImportedModel) -> Iterator[Sample]:
        assert self.images is not None
        found = False
        try:
            for sample in self.images.calibration(imported.inputs):
                found = True
                yield sample
        except (AccuracyError, CalibrationError) as error:
            raise SweepError(f"images of model {self.name!r}: {error}") from error
        if not found:
            raise SweepError(f"images of model {self.name!r}: there are none")


def prepare(source: ModelSource) -> SweptModel:
    """Raises SweepError as `ModelSource.partitioned` does."""
    from tvm_npu.calibration import images_of_run

    imported, partitioned = source.partitioned()
    marked = {symbol: partitioned.region(symbol) for symbol in partitioned.symbols}
    keepers = {symbol: _Keeper(region.graph()) for symbol, region in marked.items()}
    partitioned.run_regions(keepers, [source.sample(imported)])
    report = partitioned.report
    regions = tuple(keepers[one.symbol].region(marked[one.symbol], one) for one in report.regions)
    stem = Path(source.name).stem
    return SweptModel(
        stem, source.digest, regions, report.total_macs, report.mac_share,
        images_of_run(imported.inputs),
    )  # fmt: skip
