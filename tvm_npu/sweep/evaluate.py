"""What a design makes of a model, at one fidelity. Runs in workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.compile import compile_fixed, plan_graph
from tvm_npu.codegen.fixed_point import quantize_tensor
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.kept import Kept, keeping
from tvm_npu.codegen.plan.layers import LayerPlanner, PlannedLayer
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.codegen.shared_graphs import SharedGraphs
from tvm_npu.runtime.session import Session
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.errors import BoundedError
from tvm_npu.sim.limits import Limits
from tvm_npu.sim.machine_parts import Precision
from tvm_npu.sweep.designs import Design
from tvm_npu.sweep.engines import Shared, content_of
from tvm_npu.sweep.kept_models import model_from_bytes
from tvm_npu.sweep.models import SweptModel, SweptRegion
from tvm_npu.sweep.outcome import Outcome
from tvm_npu.sweep.spec import Fidelity

KEPT_MODELS = 8
KEPT_BYTES = 384 << 20
"""Of tables, in a worker."""
_KEPT = Kept(KEPT_BYTES)


@dataclass(frozen=True)
class LoadedModel:
    """A model in a worker; ``graphs`` are those of its regions."""

    model: SweptModel
    graphs: tuple[SharedGraphs, ...]


@lru_cache(maxsize=KEPT_MODELS)
def model_from(shared: Shared) -> LoadedModel:
    """What `models.prepared` wrote."""
    model = model_from_bytes(content_of(shared))
    return LoadedModel(model, tuple(SharedGraphs(one.graph, one.ranges) for one in model.regions))


@lru_cache(maxsize=1)
def layer_planner(design: Design) -> LayerPlanner:
    """Of a design's machine, for all regions of all models: equal layers are planned once. Raises
    the typed errors of planners that a machine does not have."""
    machine = design.machine
    assert machine is not None
    precision = design.precision or machine.default_precision
    return LayerPlanner(precision, machine, planner(design.planner))


def evaluate_all(
    shared: Sequence[Sequence[Shared]],
    designs: Sequence[Design],
    fidelity: Fidelity,
    limits: Limits,
) -> list[list[Outcome]]:
    """For each of ``designs``, of one run of each of its models, on one thread."""
    with threadpool_limits(1), keeping(_KEPT):
        return [
            [evaluate(model_from(one), design, fidelity, limits) for one in models]
            for models, design in zip(shared, designs, strict=True)
        ]


def evaluate(
    loaded: LoadedModel, design: Design, fidelity: Fidelity, limits: Limits
) -> Outcome:
    """Of one run of the model, all its images on one device (`Outcome.of_batch`). Never raises the
    typed errors of planning, code generation and simulation, ``limits`` included: they are
    outcomes."""
    machine = design.machine
    assert machine is not None
    precision = design.precision or machine.default_precision
    try:
        parts = [
            _region(graphs.fixed(machine, precision), region, design, fidelity, limits)
            for region, graphs in zip(loaded.model.regions, loaded.graphs, strict=True)
        ]
    except BoundedError as error:
        return Outcome(fault=f"{type(error).__name__}: {error}")
    regions = loaded.model.regions
    each: dict[int, float] = {}
    for region, part in zip(regions, parts, strict=True):
        each[region.images] = each.get(region.images, 0.0) + (part.cycles or 0.0)
    cycles = sum(images * one for images, one in each.items())
    checked = [part.wrong_elements for part in parts if part.wrong_elements is not None]
    return Outcome(
        cycles,
        cycles / machine.frequency_mhz,
        sum(
            region.images * (part.dram_bytes or 0)
            for region, part in zip(regions, parts, strict=True)
        ),
        sum(region.macs for region in regions),
        sum(checked) if checked else None,
        images=loaded.model.images,
        image_cycles=tuple(sorted(each.items())),
    )


def _region(
    fixed: FixedGraph, region: SweptRegion, design: Design, fidelity: Fidelity, limits: Limits
) -> Outcome:
    """Of one image: programs compute one, and none changes what the next one takes."""
    machine = design.machine
    assert machine is not None
    if fidelity == "predicted":
        planned = plan_graph(fixed, layer_planner(design))
        return _predicted(list(planned.layers), planned.storage.shapes, machine, fixed.precision)
    session = Session(compile_fixed(fixed, machine, design.planner), limits=limits)
    inputs = [
        quantize_tensor(values, fixed.q_points[name], fixed.element_bytes)
        for name, values in zip(fixed.inputs, region.inputs, strict=True)
    ]
    outputs = session.run_fixed(inputs)
    run = session.statistics
    assert run is not None
    wrong = None
    if fidelity == "checked":
        expected = run_fixed(fixed, dict(zip(fixed.inputs, inputs, strict=True)))
        wrong = sum(
            int(np.count_nonzero(found != expected[name]))
            for name, found in zip(fixed.outputs, outputs, strict=True)
        )
    return Outcome(run.cycles, dram_bytes=run.moved_bytes, wrong_elements=wrong)


def _predicted(
    layers: list[PlannedLayer], shapes: Any, machine: MachineDescription, precision: Precision
) -> Outcome:
    kind, size = backend_of(machine), machine.stored_element_bytes(precision)
    cycles = moved = 0.0
    for one in layers:
        cycles += one.predicted_cycles or 0.0
        expected = getattr(one.plan, "prediction", None)
        if expected is None and isinstance(one.problem, ConvProblem):
            expected = kind.predict(one.problem, one.plan, machine)
        if expected is not None:
            moved += expected.in_bytes + expected.weight_bytes + expected.out_bytes
        else:  # every tensor crosses once
            tensors = (*one.layer.inputs, *one.layer.outputs)
            moved += size * sum(prod(shapes[name]) for name in tensors)
    return Outcome(cycles, dram_bytes=int(moved))
