"""A region's dataflow -> `codegen.graph.Graph`.

Tensors are called ``in0, in1, ...`` and ``t0, t1, ...`` in the order of the calls, so that the
same region gives the same names whenever it is imported; ranges refer to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.passes.given_scales import with_given_scales
from tvm_npu.door.dataflow import Dataflow, OpCall
from tvm_npu.door.graph_builder import GraphBuilder
from tvm_npu.door.layers import HANDLERS
from tvm_npu.door.recurrent import RecurrentChain, recurrent_chains
from tvm_npu.door.recurrent_layers import append_recurrent
from tvm_npu.door.regions import execution_order
from tvm_npu.door.tokens import append_tokens, token_layers
from tvm_npu.errors import ImportRegionError


def import_dataflow(flow: Dataflow, name: str = "npu") -> Graph:
    """The graph that a region means. Raises ImportRegionError for operators that the rules would
    have refused."""
    return build_graph(flow, name)[0]


def build_graph(flow: Dataflow, name: str) -> tuple[Graph, GraphBuilder]:
    """The graph, and the builder that knows whose each layer is."""
    builder = GraphBuilder()
    chains = recurrent_chains(flow)
    sequences = {v: shape for chain in chains for v, shape in chain.input_shapes.items()}
    for value in flow.inputs:
        builder.add_input(value, sequences.get(value))
    by_first = {min(numbers): chain for chain, numbers in _numbered(flow, chains)}
    tokens = {flow.number_of[one.flat]: one for one in token_layers(flow)}
    groups = [numbers for _, numbers in _numbered(flow, chains)]
    groups += [sorted(flow.number_of[call] for call in one.calls) for one in tokens.values()]
    for piece in execution_order(flow.reads, groups):
        if piece[0] in by_first:
            append_recurrent(builder, by_first[piece[0]])
        elif piece[0] in tokens:
            append_tokens(builder, tokens[piece[0]])
        else:
            _append(builder, flow.calls[piece[0]], name)
    graph = Graph(
        layers=tuple(builder.layers),
        shapes=builder.shapes,
        inputs=tuple(builder.inputs),
        outputs=tuple(builder.tensors[value] for value in flow.outputs),
        name=name,
    )
    return with_given_scales(graph), builder


def _numbered(
    flow: Dataflow, chains: Sequence[RecurrentChain]
) -> Iterator[tuple[RecurrentChain, list[int]]]:
    for chain in chains:
        yield chain, sorted(flow.number_of[call] for call in chain.calls)


def _append(builder: GraphBuilder, call: OpCall, name: str) -> None:
    """The layers of one call of region ``name``."""
    handler = HANDLERS.get(call.name)
    if not call.is_call:
        raise ImportRegionError(f"region {name!r} contains a {call.spelling}")
    if handler is None:
        what = repr(call.spelling) if call.spelling else "a function"
        raise ImportRegionError(f"region {name!r} contains {what}, which has no NPU layer")
    handler(builder, call)
