"""What is tuned: three layers of ResNet-50, and all layers of the bench networks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from studies.harness.errors import StudyError
from tvm_npu import models
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.errors import SyntheticCalibrationWarning
from tvm_npu.options import make_options
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.tuning.model import Question, questions

TUNED_NETWORK = "resnet50"
TUNED_LAYERS = {
    "3x3 64>64 56x56": (64, 64, (3, 3), 56),
    "1x1 1024>256 14x14": (256, 1024, (1, 1), 14),
    "3x3 512>512 7x7": (512, 512, (3, 3), 7),
}
"""Filters, channels, kernel and OFM rows: early and wide, all channels, late and deep."""


@dataclass(frozen=True)
class NetworkLayers:
    """The distinct convolutions and fully connected layers of a network, each alone."""

    model: str
    questions: tuple[Question, ...]


def network_layers(model: str, machine: NmpMachine) -> NetworkLayers:
    """Raises StudyError for a network of which nothing is planned, and what
    `tvm_npu.door` raises."""
    from tvm_npu.door.models import import_onnx

    options = make_options(machine)
    imported = import_onnx(models.build(model), {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntheticCalibrationWarning)
        partitioned = imported.partition(options, None)
    found = questions(partitioned.fixed_graphs().values(), machine)
    alone = tuple(one for one in found if one.problem.window is None)
    if not alone:
        raise StudyError(f"model {model!r}: no layer is planned on {machine.name!r}")
    return NetworkLayers(model, alone)


def tuned_layers(network: NetworkLayers) -> dict[str, ConvProblem]:
    """The layers `TUNED_LAYERS` of their network."""
    found = {}
    for name, wanted in TUNED_LAYERS.items():
        found[name] = next(
            one.problem for one in network.questions if _shape(one.problem) == wanted
        )
    return found


def _shape(problem: ConvProblem) -> tuple[int, int, tuple[int, int], int]:
    return problem.filters, problem.channels, problem.kernel, problem.rows


def without_shared(
    networks: Sequence[NetworkLayers], left_out: NetworkLayers
) -> list[tuple[str, ConvProblem]]:
    """(network, layer) of the other networks, without layers that ``left_out`` has as well."""
    own = {one.problem for one in left_out.questions}
    return [
        (network.model, one.problem)
        for network in networks
        if network is not left_out
        for one in network.questions
        if one.problem not in own
    ]
