"""Whole networks as fixed-point NPU regions, with inputs and the outputs that are right."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from studies.harness.errors import StudyError
from tvm_npu import models
from tvm_npu.calibration import synthetic
from tvm_npu.codegen.fixed_point import dequantize_tensor, quantize_tensor
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.program.parts import as_batches
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.errors import SyntheticCalibrationWarning
from tvm_npu.options import make_options
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import Precision

Array = NDArray[Any]


@dataclass(frozen=True)
class Region:
    """A region with one sample: integer inputs [1, *shape] in the graph's order, and what the
    reference computes from them."""

    fixed: FixedGraph
    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]


@dataclass(frozen=True)
class Network:
    """A network's regions in execution order; ``cpu_operators`` are those that no region has."""

    model: str
    regions: tuple[Region, ...]
    macs: int
    npu_mac_share: float
    cpu_operators: int

    @property
    def layers(self) -> int:
        return sum(len(region.fixed.layers) for region in self.regions)


@dataclass(frozen=True)
class NetworkFacts:
    """What tables say about a network; ``regions`` and ``layers`` are counted."""

    model: str
    regions: int
    layers: int
    macs: int
    npu_mac_share: float
    cpu_operators: int


def facts_of(network: Network) -> NetworkFacts:
    return NetworkFacts(
        network.model, len(network.regions), network.layers, network.macs, network.npu_mac_share,
        network.cpu_operators,
    )  # fmt: skip


class _Recorder:
    """Runs a region by the reference and keeps the integers."""

    def __init__(self, fixed: FixedGraph) -> None:
        self.fixed = fixed
        self.region: Region | None = None

    def run(self, arrays: list[Any]) -> list[Array]:
        fixed = self.fixed
        inputs = {
            name: quantize_tensor(values, fixed.q_points[name], fixed.element_bytes)
            for name, values in as_batches(arrays, fixed.inputs, fixed.shapes).items()
        }
        tensors = run_fixed(fixed, inputs)
        expected = tuple(tensors[name] for name in fixed.outputs)
        self.region = Region(fixed, tuple(inputs.values()), expected)
        return [
            dequantize_tensor(values, fixed.q_points[name])
            for name, values in zip(fixed.outputs, expected, strict=True)
        ]


def prepare(
    model: str,
    machine: MachineDescription,
    precision: Precision,
    seed: int = 0,
    *,
    input_size: int | None = None,
    width: float = 1.0,
) -> Network:
    """Builds, partitions, calibrates and quantizes a network of `tvm_npu.models`, at its published
    size or at another (``input_size`` and ``width`` as for `models.build`).

    Calibration data and the sample are random (standard normal, ``seed``): no strategy's time
    depends on values. Raises StudyError when nothing runs on the NPU, and what
    `tvm_npu.door` raises.
    """
    built = models.build(model, seed=seed, input_size=input_size, width=width)
    return prepare_model(model, built, machine, precision, seed)


def fixed_regions(
    model: str, machine: MachineDescription, precision: Precision
) -> list[FixedGraph]:
    """The NPU regions of `prepare`, of which none runs."""
    partitioned = _partitioned(models.build(model), machine, precision, 0)[1]
    return list(partitioned.fixed_graphs().values())


def _partitioned(
    proto: Any, machine: MachineDescription, precision: Precision, seed: int
) -> tuple[Any, Any]:
    """An ONNX model as TVM imports it, and with its regions, calibrated on random data."""
    from tvm_npu.door.models import import_onnx

    imported = import_onnx(proto, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntheticCalibrationWarning)
        options = make_options(machine, precision=precision, seed=seed)
        return imported, imported.partition(options, None)


def prepare_model(
    model: str, proto: Any, machine: MachineDescription, precision: Precision, seed: int = 0
) -> Network:
    """`prepare` for an ONNX model (``proto``) called ``model``."""
    imported, partitioned = _partitioned(proto, machine, precision, seed)
    report = partitioned.report
    graphs = partitioned.fixed_graphs()
    recorders = {symbol: _Recorder(graphs[symbol]) for symbol in partitioned.symbols}
    partitioned.run_regions(recorders, synthetic(imported.inputs, seed + 1, count=1))
    regions = tuple(one.region for one in recorders.values() if one.region is not None)
    if not regions or len(regions) != len(graphs):
        raise StudyError(
            f"model {model!r}: {len(regions)} of {len(graphs)} NPU regions ran; first operator on "
            f"the CPU: {report.refusals[0] if report.refusals else 'none'}"
        )
    return Network(model, regions, report.total_macs, report.mac_share, len(report.refusals))
