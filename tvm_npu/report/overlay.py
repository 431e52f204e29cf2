"""A profile laid over the model's own graph, for viewers of models: Netron and Model Explorer.

Netron shows the metadata of nodes (``metadata_props``, ONNX IR version 10 and later). Model
Explorer colours nodes by a file of node data, of the layout of `GraphNodeData` in its
``node_data_builder.py``: values by the name of a node's output tensor.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.graph.scale import Scale
from tvm_npu.door.onnx.names import node_names
from tvm_npu.errors import NpuError
from tvm_npu.report.model_graph import layers_of
from tvm_npu.report.profile import LayerRow, Profile

PREFIX = "npu."
IR_VERSION = 10
"""Of ONNX: the first in which nodes have metadata."""
LARGEST_BYTES = (1 << 31) - 1
"""Of a protocol buffer."""
VALUES = ("time_us", "place", "bound", "roofline_share", "own_sqnr_db", "q_point")
"""What node data can colour nodes by."""
GRADIENT = ({"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#e0533d"})
CPU, COMPILED_AWAY = "CPU", "compiled away"

Note = str | int | float
Notes = dict[str, Note]
SqnrByLayer = Mapping[tuple[str, str], tuple[float | None, float | None]]


class OverlayError(NpuError):
    """The model cannot be annotated, or nothing is known to colour it by."""


def notes_by_node(
    model: Any,
    profile: Profile,
    graphs: Iterable[FixedGraph] = (),
    sqnr_db: SqnrByLayer | None = None,
) -> list[Notes]:
    """What is known of every node of an onnx.ModelProto, in its order; values without an entry are
    not known. ``graphs`` are the regions' fixed-point graphs, which say Q-points; ``sqnr_db`` has
    (own, accumulated) signal to noise by region and layer. The figures of a layer that several
    nodes became stand at the first of them, so that sums over nodes are those of the profile."""
    why_cpu = {
        one.source: f"broken rule: {one.rule} (found: {one.value}; allowed: {one.limit})"
        for one in profile.report.refusals
    }
    q_points = dict(_q_points(graphs))
    found: list[Notes] = []
    seen: set[tuple[str, str]] = set()
    nodes = model.graph.node
    for source, layer in zip(node_names(nodes), layers_of(nodes, profile.layers), strict=True):
        if layer is None:
            reason = why_cpu.get(source)
            found.append(
                {"place": COMPILED_AWAY} if reason is None else {"place": CPU, "why": reason}
            )
            continue
        row = profile.layers[layer]
        notes: Notes = {"place": row.region, "layer": row.name, "precision": row.precision}
        if source in q_points:
            notes["q_point"] = q_points[source]
        if (row.region, row.name) not in seen:
            seen.add((row.region, row.name))
            notes |= _figures(row, (sqnr_db or {}).get((row.region, row.name), (None, None)))
        found.append(notes)
    return found


def overlay_bytes(
    path: Path, model: Any, notes: Iterable[Mapping[str, Note]], value: str = "time_us"
) -> bytes:
    """What ``path`` holds for its viewer: `node_data` by ``value`` where it ends in .json, else the
    `annotated` model. Raises OverlayError as they do."""
    if path.suffix == ".json":
        return json.dumps(node_data(model, notes, value), indent=2).encode() + b"\n"
    return bytes(annotated(model, notes).SerializeToString())


def annotated(model: Any, notes: Iterable[Mapping[str, Note]]) -> Any:
    """A copy of an onnx.ModelProto whose nodes have ``notes`` as metadata ``npu.<key>``, in the
    place of what an earlier overlay has left. Raises OverlayError for a model too large for one
    file."""
    import onnx

    if model.ByteSize() > LARGEST_BYTES:
        raise OverlayError(
            f"the model has {model.ByteSize():,} bytes; a file of ONNX holds {LARGEST_BYTES:,} "
            "(node data for Model Explorer holds no weights: name a .json file)"
        )
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = max(copy.ir_version, IR_VERSION)
    for node, known in zip(copy.graph.node, notes, strict=True):
        kept = [item for item in node.metadata_props if not item.key.startswith(PREFIX)]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        for key, value in known.items():
            text = f"{value:g}" if isinstance(value, float) else str(value)
            node.metadata_props.add(key=PREFIX + key, value=text)
    return copy


def node_data(model: Any, notes: Iterable[Mapping[str, Note]], value: str) -> dict[str, Any]:
    """Model Explorer's node data: ``value``, one of `VALUES`, by output tensor. Raises OverlayError
    where no node has it."""
    results = {
        tensor: {"value": known[value]}
        for node, known in zip(model.graph.node, notes, strict=True)
        if value in known
        for tensor in node.output[:1]
    }
    if not results:
        raise OverlayError(f"no node has {value!r}: it needs timing, or calibration data")
    data: dict[str, Any] = {"results": results}
    if not any(isinstance(one["value"], str) for one in results.values()):
        data["gradient"] = list(GRADIENT)
    return data


def _figures(row: LayerRow, sqnr_db: tuple[float | None, float | None]) -> Notes:
    """Of a layer, without what is not known."""
    found = row.breakdown
    known: dict[str, Note | None] = {
        "time_us": row.time_us,
        "cycles": row.cycles,
        "macs": row.macs,
        "dram_bytes": row.dram_bytes,
        "bound": None if found is None else found.bound,
        "roofline_share": None if found is None else found.roofline_share,
        "own_sqnr_db": sqnr_db[0],
        "accumulated_sqnr_db": sqnr_db[1],
    }
    return {key: value for key, value in known.items() if value is not None}


def _q_points(graphs: Iterable[FixedGraph]) -> Iterable[tuple[str, Note]]:
    """(source, Q-point of what it computes). A layer that several nodes became has one."""
    for graph in graphs:
        for layer in graph.layers:
            scale = graph.scales[layer.outputs[0]]
            yield from ((source, _in_words(scale)) for source in layer.source)


def _in_words(scale: Scale) -> Note:
    """The Q-point, or where it is none how many of the integers' steps make what."""
    if scale.is_q_point:
        return scale.q_point
    least, most = scale.steps.min(), scale.steps.max()
    return f"step {least:g}" if least == most else f"steps {least:g} to {most:g}"
