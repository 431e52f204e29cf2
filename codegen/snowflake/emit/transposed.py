"""Transposed convolutions: a convolution layer a phase, whose results lie strided in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.ops import FixedTransposedConv
from tvm_npu.codegen.snowflake.emit.place import LayerSteps, Site
from tvm_npu.codegen.snowflake.plan.tiling import ConvShape, Geometry, SnowflakePlan
from tvm_npu.codegen.snowflake.plan.transposed import PhaseAxis, TransposedShape, rooms_of
from tvm_npu.codegen.snowflake.steps.conv import ConvLayer
from tvm_npu.codegen.snowflake.steps.kernels import Arranged, arranged
from tvm_npu.codegen.snowflake.steps.maps import Map
from tvm_npu.codegen.snowflake.steps.objects import Step
from tvm_npu.codegen.snowflake.steps.requantize import Requantize

WORD: np.dtype[np.int16] = np.dtype("<i2")


def transposed_layer(layer: FixedTransposedConv, site: Site) -> list[LayerSteps]:
    """Clusters share the rows of every phase."""
    shape, plan = site.planned.problem, site.planned.plan
    assert isinstance(shape, TransposedShape) and isinstance(plan, SnowflakePlan)
    clusters = min(site.clusters, *(one.rows.out for one in shape.phases))
    build = _Builder(layer, site, shape)
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
    arranged: dict[int, tuple[Arranged, int]] = field(default_factory=dict)
    """By number of group and phase."""

    def cluster(self, geometries: tuple[Geometry, ...]) -> LayerSteps:
        """All phases of a tile of maps one after the other, group by group."""
        rooms = rooms_of(geometries)
        assert rooms is not None
        parts = []
        for group in range(self.shape.groups):
            steps: list[Step] = []
            for number, found in enumerate(geometries):
                first = group * len(geometries)
                steps += self._phase(found, group, first + number, first).steps()
            parts.append((steps, rooms, geometries[0].plan.stays))
        return LayerSteps(parts)

    def _phase(self, found: Geometry, group: int, number: int, first: int) -> ConvLayer:
        """Phase ``number`` of all groups' phases, of which ``first`` is the group's first."""
        layer, one = self.layer, found.shape
        source, target = self.site.tensor(layer.inputs[0]), self.site.tensor(layer.output)
        words, at = self._weights(found, group, number)
        return ConvLayer(
            self.site.index, found, source.some_planes(group * one.planes, one.planes),
            _phase_of(target.some_planes(group * one.filters, one.filters), one), None, words, at,
            Requantize(layer.shift, layer.low, layer.high), number,
            maps_group=first if self.shape.shares_maps else None,
        )  # fmt: skip

    def _weights(self, found: Geometry, group: int, number: int) -> tuple[Arranged, int]:
        """Arranged, and where they lie in CONSTANTS."""
        if number not in self.arranged:
            made = arranged(found, *_taps(self.layer, found.shape, group))
            what = f"layer {self.layer.name!r}, weights of phase {number}"
            self.arranged[number] = made, self.site.constants.add(made.words, WORD, what)
        return self.arranged[number]


def _phase_of(target: Map, shape: ConvShape) -> Map:
    """The results of a phase in the layer's."""
    rows, columns = shape.rows, shape.columns
    assert isinstance(rows, PhaseAxis) and isinstance(columns, PhaseAxis)
    return replace(
        target, offset=target.byte(rows.begin, columns.begin), rows=rows.out, columns=columns.out,
        pitch=target.pitch * columns.kernel_step, row_pitch=target.row_words * rows.kernel_step,
    )  # fmt: skip


def _taps(
    layer: FixedTransposedConv, shape: ConvShape, group: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """[filters, rows, columns, planes] of a phase's window (depthwise: without planes) and
    biases; zeros where the kernel has no row or column."""
    mine = slice(group * shape.filters, (group + 1) * shape.filters)
    weight, bias = layer.weight[mine], layer.bias[mine]
    for axis, one in ((2, shape.rows), (3, shape.columns)):
        assert isinstance(one, PhaseAxis)
        rows = one.kernel_first - one.kernel_step * np.arange(one.kernel)
        inside = (rows >= 0) & (rows < weight.shape[axis])
        taken = np.take(weight, np.where(inside, rows, 0), axis=axis)
        weight = taken * inside.reshape((1,) * axis + (-1,) + (1,) * (3 - axis))
    if shape.is_depthwise:
        return weight[:, 0], bias
    return weight.transpose(0, 2, 3, 1), bias
