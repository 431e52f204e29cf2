"""Where a layer's tensors lie, and what its builder gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tvm_npu.codegen.backend import PlannedGraph
from tvm_npu.codegen.graph.tensors import chw
from tvm_npu.codegen.plan.layers import PlannedLayer
from tvm_npu.codegen.plan.problem import share
from tvm_npu.codegen.program.constants import Constants
from tvm_npu.codegen.program.parts import Segment
from tvm_npu.codegen.snowflake.emit.tables import Tables
from tvm_npu.codegen.snowflake.plan.tiling import Stays
from tvm_npu.codegen.snowflake.steps.maps import Map
from tvm_npu.codegen.snowflake.steps.objects import Rooms, Step
from tvm_npu.sim.snowflake.machine import SnowflakeMachine


@dataclass(frozen=True)
class LayerSteps:
    """A cluster's steps for a layer, in parts with places of their own, and which kind of load
    stays."""

    parts: Sequence[tuple[list[Step], Rooms, Stays]]


@dataclass(frozen=True)
class Site:
    """A layer in its region."""

    index: int
    planned: PlannedLayer
    region: PlannedGraph
    machine: SnowflakeMachine
    constants: Constants
    tables: Tables
    clusters: int
    """That share the layer."""

    def tensor(self, name: str) -> Map:
        """A tensor as rows and columns of pixels; a flat one is a row of as many pixels as it was
        made of."""
        storage = self.region.storage
        form, shape = storage.forms[name], storage.shapes[name]
        planes, rows, columns = chw(shape)
        if planes != form.planes:
            planes, rows, columns = form.planes, 1, prod(shape) // form.planes
        offset = storage.offsets[name]
        return Map(Segment.ACTIVATIONS, offset, rows, columns, planes, form.pitch)


def shares(total: int, clusters: int) -> list[tuple[int, int]]:
    """(begin, count) of each cluster that gets something."""
    parts = min(total, clusters)
    return [share(total, parts, part) for part in range(parts)]
