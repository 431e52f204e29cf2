"""Pools that a machine or a format would not take well, rewritten before quantization.

`with_pools_in_parts`: a pool over a whole feature map whose window fits no buffer becomes two, over
equal parts and over their results: exact for maxima; an average rounds once more. So does in int8
an average of more than MOST_TAPS elements, so that each of the two can have digits of its own.

`with_weighed_averages`: in int8 an average pool whose results need far fewer integers than its
input has (the mean of a tensor around zero) would keep nearly none: pools have one scale. It
becomes a depthwise convolution by 1 / n, whose result has a scale of its own. Only where that gains
MIN_GAIN_BITS: else a pool costs less.
"""

from __future__ import annotations

from dataclasses import replace

from tvm_npu.codegen.graph import Graph, Layer, chw
from tvm_npu.codegen.least import LeastNeeds
from tvm_npu.codegen.ops import Pool
from tvm_npu.codegen.passes.calibrate import Ranges
from tvm_npu.codegen.passes.qpoints import range_q_point
from tvm_npu.codegen.passes.rewriting import swap
from tvm_npu.codegen.passes.weighed import MOST_TAPS, can_be_weighed, weighed

PARTS = "@parts"
"""Behind the name of a pool's result: that of its parts."""
MIN_GAIN_BITS = 2


def with_pools_in_parts(graph: Graph, needs: LeastNeeds, element_bytes: int) -> Graph:
    """``needs`` says what fits the machine."""
    layers: list[Layer] = []
    shapes = dict(graph.shapes)
    for layer in graph.layers:
        if isinstance(layer, Pool):
            channels, rows, columns = chw(graph.shapes[layer.inputs[0]])
            part = None
            if is_global(layer, (rows, columns)):
                part = _part(layer, needs, element_bytes)
            if part is not None:
                parts = f"{layer.output}{PARTS}"
                left = (rows // part[0], columns // part[1])
                layers.append(
                    Pool(f"{layer.name}@parts", layer.inputs, (parts,), layer.kind, part, part)
                )
                layer = replace(layer, inputs=(parts,), kernel=left, stride=(1, 1))
                shapes[parts] = (channels, *left)
        layers.append(layer)
    return graph if len(layers) == len(graph.layers) else graph.with_layers(layers, shapes)


def with_ranges_of_parts(graph: Graph, ranges: Ranges) -> Ranges:
    """``ranges`` with those of parts' results, where calibration did not see them: those of what
    is pooled."""
    known = dict(ranges.tensors)
    for layer in graph.layers:
        if isinstance(layer, Pool) and layer.output.endswith(PARTS):
            known.setdefault(layer.output, ranges[layer.inputs[0]])
    return replace(ranges, tensors=known)


def _part(layer: Pool, needs: LeastNeeds, element_bytes: int) -> tuple[int, int] | None:
    """The window of a global pool's parts; None for one that stays as it is."""
    rows, columns = layer.kernel
    fits = needs.pool_input(layer.kernel).fits
    if layer.kind == "avg" and element_bytes == 1 and rows * columns > MOST_TAPS:
        found = largest_part(rows, columns, needs, MOST_TAPS)
        if found is not None or fits:
            return found
    return None if fits else largest_part(rows, columns, needs)


def is_global(layer: Pool, extents: tuple[int, int]) -> bool:
    """The one window is the feature map."""
    return layer.kernel == extents and not any(layer.padding)


def largest_part(
    rows: int, columns: int, needs: LeastNeeds, most: int | None = None
) -> tuple[int, int] | None:
    """The largest of equal parts of a feature map, of at most ``most`` elements, that fits, and
    lets the parts' results fit; of full width where there is one."""
    parts = [
        (part_rows, part_columns)
        for part_rows in divisors(rows)
        for part_columns in divisors(columns)
        if (most is None or part_rows * part_columns <= most)
        and needs.pool_input((part_rows, part_columns)).fits
        and needs.pool_input((rows // part_rows, columns // part_columns)).fits
    ]
    return max(parts, key=lambda part: (part[1] == columns, part[0] * part[1]), default=None)


def divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def with_weighed_averages(
    graph: Graph, ranges: Ranges, element_bytes: int, needs: LeastNeeds | None = None
) -> Graph:
    """Of int8; the graph itself for other elements. Averages whose convolutions do not fit the
    machine, as ``needs`` says (None: any fits), stay averages."""
    if element_bytes > 1:
        return graph
    changes: dict[Layer, Layer | None] = {}
    for layer in graph.layers:
        if not isinstance(layer, Pool) or not can_be_weighed(layer):
            continue
        if layer.output in graph.scales or not _fits_weighed(layer, needs):
            continue
        source, made = layer.inputs[0], layer.output
        points = [range_q_point(ranges[tensor], 1, True) for tensor in (source, made)]
        if None in points or points[1] - points[0] < MIN_GAIN_BITS:  # type: ignore[operator]
            continue
        changes[layer] = weighed(layer, graph.shapes[source][0])
    return swap(graph, changes) if changes else graph


def _fits_weighed(layer: Pool, needs: LeastNeeds | None) -> bool:
    """The depthwise convolution that the average becomes fits the machine."""
    if needs is None:
        return True
    window = layer.kernel
    found = needs.conv_input(window, window, 1, layer.stride), needs.conv_weight(window, window)
    return all(need.fits for need in found)
