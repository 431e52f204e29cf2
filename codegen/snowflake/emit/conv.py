"""Convolutions and fully connected layers: a part a cluster, weights arranged, groups one after the
other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.ops import FixedConv, FixedConvMaxima, FixedConvPixels
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.snowflake.emit.place import LayerSteps, Site
from tvm_npu.codegen.snowflake.plan.behind import MaximaProblem
from tvm_npu.codegen.snowflake.plan.division import Part, is_pointwise, parts_of
from tvm_npu.codegen.snowflake.plan.tiling import (
    ConvShape,
    Geometry,
    SnowflakePlan,
    conv_shape,
    geometry,
)
from tvm_npu.codegen.snowflake.steps.behind import NOTHING, Maxima, halved
from tvm_npu.codegen.snowflake.steps.conv import ConvLayer, Results
from tvm_npu.codegen.snowflake.steps.kernels import Pieces, arranged
from tvm_npu.codegen.snowflake.steps.maps import Map
from tvm_npu.codegen.snowflake.steps.objects import Rooms
from tvm_npu.codegen.snowflake.steps.requantize import Requantize

Range = tuple[int, int]


def conv_layer(layer: FixedConv, site: Site) -> list[LayerSteps]:
    """The steps of each cluster."""
    problem = site.planned.problem
    assert isinstance(problem, ConvProblem)
    return _layer(layer, site, problem, layer.output, NOTHING)


def conv_maxima_layer(layer: FixedConvMaxima, site: Site) -> list[LayerSteps]:
    problem = site.planned.problem
    assert isinstance(problem, MaximaProblem)
    halves, windows = (
        None if one is None else Requantize(one.shift, one.low, one.high).specials
        for one in (layer.feature_map, layer.pool)
    )
    return _layer(layer.conv, site, problem.conv, layer.output, Maxima(halves, windows))


def conv_pixels_layer(layer: FixedConvPixels, site: Site) -> list[LayerSteps]:
    """Blocks of results are filters of a convolution with a larger window and stride."""
    problem = site.planned.problem
    assert isinstance(problem, ConvProblem)
    weight, bias = layer.weights()
    conv = replace(layer.conv, weight=weight, bias=bias, stride=layer.stride)
    return _layer(conv, site, problem, layer.output, NOTHING, layer.pixels)


def _layer(
    layer: FixedConv, site: Site, problem: ConvProblem, output: str, behind: Maxima,
    pixels: tuple[int, int] = (1, 1),
) -> list[LayerSteps]:  # fmt: skip
    plan = site.planned.plan
    assert isinstance(plan, SnowflakePlan)
    image_planes = site.tensor(layer.inputs[0]).planes
    parts = parts_of(problem, plan.divides, site.clusters)
    found = [geometry(conv_shape(part.problem, image_planes), plan, site.machine) for part in parts]
    tiles = max(len(one.filter_tiles) for one in found), max(len(one.map_tiles) for one in found)
    build = _Builder(layer, site, problem, tiles, output, behind, pixels)
    # Of filters the first part has the most: with its places loads of maps are alike everywhere.
    places = [found[0].rooms if plan.divides == "filters" else one.rooms for one in found]
    made = []
    for part, one, rooms in zip(parts, found, places, strict=True):
        if rooms is None:
            raise EmitError(f"layer {layer.name!r}: part {part} does not fit the cluster's buffers")
        made.append(build.cluster(part, one, rooms))
    return made


@dataclass
class _Builder:
    """Makes a layer's parts; weights that several of them have are arranged once. ``tiles`` are
    the most tiles of filters and of maps that a part has."""

    layer: FixedConv
    site: Site
    problem: ConvProblem
    tiles: tuple[int, int]
    output: str
    behind: Maxima
    pixels: tuple[int, int]
    arranged: dict[Range, tuple[Pieces, int]] = field(default_factory=dict)

    def cluster(self, part: Part, found: Geometry, rooms: Rooms) -> LayerSteps:
        layer, shape = self.layer, found.shape
        requantize = Requantize(
            layer.shift, layer.low, layer.high, layer.accumulator_shift, layer.residual_shift
        )
        steps = []
        for group in range(shape.groups):
            filters = part.filters[0] + group * shape.filters, shape.filters
            pieces, at = self._weights(found, filters)
            made = ConvLayer(
                self.site.index, found, self._source(part, shape, filters[0]),
                tuple(self._targets(part, shape, filters)),
                self._result(layer.inputs[1], part, shape, filters, NOTHING)
                if len(layer.inputs) > 1 else None,
                pieces, at, requantize, group, tiles=self.tiles, behind=self.behind,
            )  # fmt: skip
            steps.append((made.steps(), rooms, found.plan.stays))
        return LayerSteps(steps)

    def _source(self, part: Part, shape: ConvShape, first_filter: int) -> Map:
        """The maps of the group that ``first_filter`` belongs to."""
        problem, tensor = self.problem, self.site.tensor(self.layer.inputs[0])
        if part.inputs[1] < _whole(problem).inputs[1]:
            columns = 1 if is_pointwise(problem) else problem.in_columns
            tensor = _seen(tensor, _whole(problem).inputs[1], columns).some_rows(*part.inputs)
        group = first_filter // (problem.filters // problem.groups)
        planes = group * (problem.channels // problem.groups)
        seen = _seen(tensor, shape.rows.size, shape.columns.size)
        return seen.some_planes(planes, shape.planes)

    def _targets(self, part: Part, shape: ConvShape, filters: Range) -> Iterator[Results]:
        """Where the results of ``filters`` lie."""
        if self.pixels == (1, 1):
            yield Results(0, self._result(self.output, part, shape, filters, self.behind))
            return
        first = 0
        for target in _of_blocks(self.site.tensor(self.output), self.pixels):
            begin = max(first, filters[0])
            count = min(first + target.planes, sum(filters)) - begin
            if count > 0:
                mine = target.some_rows(*part.rows).some_planes(begin - first, count)
                yield Results(begin - filters[0], mine)
            first += target.planes

    def _result(
        self, name: str, part: Part, shape: ConvShape, filters: Range, behind: Maxima
    ) -> Map:
        problem, tensor = self.problem, self.site.tensor(name)
        if part.rows[1] < _whole(problem).rows[1]:
            columns = 1 if is_pointwise(problem) else problem.columns
            rows, wide = (behind.pixels((0, n))[1] for n in (_whole(problem).rows[1], columns))
            tensor = _seen(tensor, rows, wide).some_rows(*behind.pixels(part.rows))
        down, across = (behind.pixels((0, axis.out))[1] for axis in (shape.rows, shape.columns))
        return _seen(tensor, down, across).some_planes(*behind.planes(filters))

    def _weights(self, found: Geometry, filters: Range) -> tuple[Pieces, int]:
        """Their pieces, and where these lie in CONSTANTS."""
        if filters not in self.arranged:
            weight, bias = _taps(self.layer, found.shape, self._order(found, filters))
            words, pieces = arranged(found, weight, bias)
            at = self.site.constants.add(
                words, np.dtype("<i2"), f"layer {self.layer.name!r}, weights"
            )
            self.arranged[filters] = pieces, at
        return self.arranged[filters]

    def _order(self, found: Geometry, filters: Range) -> slice | NDArray[np.intp]:
        """The layer's filters as they lie in a part's tiles: of a max feature map every tile has
        filters of the first half and then those that they are compared with."""
        if self.behind.halves is None:
            return slice(filters[0], sum(filters))  # a view: weights can be large
        half = self.problem.filters // 2
        tiles = [halved((filters[0] + begin, count)) for begin, count in found.filter_tiles]
        return np.concatenate([
            first + np.arange(begin, begin + count) for begin, count in tiles for first in (0, half)
        ])  # fmt: skip


def _whole(problem: ConvProblem) -> Part:
    return parts_of(problem, "none", 1)[0]


def _of_blocks(tensor: Map, pixels: tuple[int, int]) -> Iterator[Map]:
    """The results of blocks of ``pixels`` (rows, columns): those of each place in a block, or of
    each row of it where nothing lies between pixels."""
    tall, wide = pixels
    joined = tensor.pitch == tensor.planes
    planes = tensor.planes * (wide if joined else 1)
    for row in range(tall):
        for column in range(1 if joined else wide):
            yield replace(
                tensor, offset=tensor.byte(row, column), rows=tensor.rows // tall,
                columns=tensor.columns // wide, planes=planes, pitch=tensor.pitch * wide,
                row_pitch=tensor.row_words * tall if tall > 1 else 0,
            )  # fmt: skip


def _seen(tensor: Map, rows: int, columns: int) -> Map:
    words = tensor.rows * tensor.columns * tensor.planes
    return tensor.seen_as(rows, columns, words // (rows * columns))


def _taps(
    layer: FixedConv, shape: ConvShape, mine: slice | NDArray[np.intp]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """[filters, rows, columns, planes] and biases; of a fully connected layer in the order in which
    its input lies."""
    weight, bias = layer.weight[mine], layer.bias[mine]
    if layer.is_dense:
        pixels = shape.taps
        weight = weight.reshape(len(weight), shape.planes, 1, pixels)
    if shape.is_depthwise:
        return weight[:, 0], bias
    return weight.transpose(0, 2, 3, 1), bias
