"""A region's dataflow -> `codegen.graph.Graph`.

Tensors are called ``in0, in1, ...`` and ``t0, t1, ...`` in the order of the calls, so that the
same region gives the same names whenever it is imported; ranges refer to them.
"""

from __future__ import annotations

from tvm_npu.codegen.graph import Graph
from tvm_npu.door.dataflow import Dataflow
from tvm_npu.door.graph_builder import GraphBuilder
from tvm_npu.door.layers import HANDLERS
from tvm_npu.errors import ImportRegionError


def import_dataflow(flow: Dataflow, name: str = "npu") -> Graph:
    """The graph that a region means. Raises ImportRegionError for operators that the rules would
    have refused."""
    return build_graph(flow, name)[0]


def build_graph(flow: Dataflow, name: str) -> tuple[Graph, GraphBuilder]:
    """The graph, and the builder that knows whose each layer is."""
    builder = GraphBuilder()
    for value in flow.inputs:
        builder.add_input(value)
    for call in flow.calls:
        handler = HANDLERS.get(call.name)
        if not call.is_call:
            raise ImportRegionError(f"region {name!r} contains a {call.spelling}")
        if handler is None:
            what = repr(call.spelling) if call.spelling else "a function"
            raise ImportRegionError(f"region {name!r} contains {what}, which has no NPU layer")
        handler(builder, call)
    graph = Graph(
        layers=tuple(builder.layers),
        shapes=builder.shapes,
        inputs=tuple(builder.inputs),
        outputs=tuple(builder.tensors[value] for value in flow.outputs),
        name=name,
    )
    return graph, builder
