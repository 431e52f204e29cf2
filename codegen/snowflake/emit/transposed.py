"""Transposed convolutions: a convolution layer for phases that are computed side by side, whose
results lie strided in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.ops import FixedTransposedConv
from tvm_npu.codegen.snowflake.emit.place import LayerSteps, Site
from tvm_npu.codegen.snowflake.plan.phases import Phase, PhasesPlan, Together, TransposedShape
from tvm_npu.codegen.snowflake.plan.tiling import Geometry
from tvm_npu.codegen.snowflake.plan.transposed import clusters_of, rooms_of
from tvm_npu.codegen.snowflake.steps.conv import ConvLayer, Results
from tvm_npu.codegen.snowflake.steps.kernels import Pieces, arranged
from tvm_npu.codegen.snowflake.steps.maps import Map
from tvm_npu.codegen.snowflake.steps.objects import Step
from tvm_npu.codegen.snowflake.steps.requantize import Requantize

WORD: np.dtype[np.int16] = np.dtype("<i2")


def transposed_layer(layer: FixedTransposedConv, site: Site) -> list[LayerSteps]:
    """Clusters share the rows of every phase."""
    shape, plan = site.planned.problem, site.planned.plan
    assert isinstance(shape, TransposedShape) and isinstance(plan, PhasesPlan)
    clusters = clusters_of(shape, plan, site.clusters)
    build = _Builder(layer, site, shape, shape.convolutions(plan.side_by_side))
    return [
        build.cluster(shape.geometries(plan, site.machine, clusters, cluster))
        for cluster in range(clusters)
    ]


@dataclass
class _Builder:
    """Makes a layer's parts; weights are arranged once for all clusters."""

    layer: FixedTransposedConv
    site: Site
    shape: TransposedShape
    convolutions: tuple[Together, ...]
    arranged: dict[int, tuple[Pieces, int]] = field(default_factory=dict)
    """By number of group and convolution."""

    def cluster(self, geometries: tuple[Geometry, ...]) -> LayerSteps:
        """All phases of a tile of maps one after the other, group by group."""
        rooms = rooms_of(geometries)
        assert rooms is not None
        parts = []
        for group in range(self.shape.groups):
            steps: list[Step] = []
            for number, found in enumerate(geometries):
                first = group * len(geometries)
                steps += self._convolution(found, group, number, first).steps()
            parts.append((steps, rooms, geometries[0].plan.stays))
        return LayerSteps(parts)

    def _convolution(self, found: Geometry, group: int, number: int, first: int) -> ConvLayer:
        """Number ``number`` of a group, whose first is number ``first`` of the layer's."""
        layer, together = self.layer, self.convolutions[number]
        source = self.site.tensor(layer.inputs[0])
        target = self.site.tensor(layer.output)
        planes, filters = self.shape.planes, self.shape.filters
        pieces, at = self._weights(found, group, number, first)
        return ConvLayer(
            self.site.index, found, source.some_planes(group * planes, planes),
            _targets(target.some_planes(group * filters, filters), together), None, pieces, at,
            Requantize(layer.shift, layer.low, layer.high), first + number,
            maps_group=first if self.shape.shares_maps else None,
        )  # fmt: skip

    def _weights(
        self, found: Geometry, group: int, number: int, first: int
    ) -> tuple[Pieces, int]:
        """Their pieces, and where these lie in CONSTANTS."""
        key = first + number
        if key not in self.arranged:
            taps = [
                _taps(self.layer, self.shape, phase, group)
                for phase in self.convolutions[number].phases
            ]
            weight, bias = (np.concatenate(parts) for parts in zip(*taps, strict=True))
            words, pieces = arranged(found, weight, bias)
            what = f"layer {self.layer.name!r}, weights of phases {key}"
            self.arranged[key] = pieces, self.site.constants.add(words, WORD, what)
        return self.arranged[key]


def _targets(target: Map, together: Together) -> tuple[Results, ...]:
    """Where the results of every phase lie in the layer's. Those of phases that follow each other
    in a row are one where nothing lies between them."""
    found = [(_phase_of(target, phase), phase) for phase in together.phases]
    in_row = sum(phase.rows == together.phases[0].rows for phase in together.phases)
    steps = together.phases[0].columns.kernel_step
    if in_row == steps and target.pitch == target.planes:
        planes = target.planes * steps
        return tuple(
            Results(planes * number, replace(one, planes=planes, pitch=planes))
            for number, (one, _) in enumerate(found[::steps])
        )
    return tuple(
        Results(target.planes * number, one) for number, (one, _) in enumerate(found)
    )


def _phase_of(target: Map, phase: Phase) -> Map:
    """The results of a phase in the layer's."""
    rows, columns = phase.rows, phase.columns
    return replace(
        target, offset=target.byte(rows.begin, columns.begin), rows=rows.out, columns=columns.out,
        pitch=target.pitch * columns.kernel_step, row_pitch=target.row_words * rows.kernel_step,
    )  # fmt: skip


def _taps(
    layer: FixedTransposedConv, shape: TransposedShape, phase: Phase, group: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """[filters, rows, columns, planes] of a phase's window (depthwise: without planes) and
    biases; zeros where the kernel has no row or column."""
    mine = slice(group * shape.filters, (group + 1) * shape.filters)
    weight, bias = layer.weight[mine], layer.bias[mine]
    for axis, one in ((2, phase.rows), (3, phase.columns)):
        rows = one.kernel_first - one.kernel_step * np.arange(one.kernel)
        inside = (rows >= 0) & (rows < weight.shape[axis])
        taken = np.take(weight, np.where(inside, rows, 0), axis=axis)
        weight = taken * inside.reshape((1,) * axis + (-1,) + (1,) * (3 - axis))
    if shape.is_depthwise:
        return weight[:, 0], bias
    return weight.transpose(0, 2, 3, 1), bias
