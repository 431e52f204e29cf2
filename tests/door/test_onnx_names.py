"""Nodes have names while a model is read, whoever else reads it, and none are left in it."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402

from tvm_npu.door.onnx.names import named, node_names  # noqa: E402


def nameless() -> Any:
    nodes = [helper.make_node("Relu", [f"t{n}"], [f"t{n + 1}"]) for n in range(3)]
    nodes[1].name = "own"
    return helper.make_model(helper.make_graph(nodes, "g", [], []))


def test_types_are_numbered_and_names_go_again() -> None:
    model = nameless()
    before = model.SerializeToString()
    assert node_names(model.graph.node) == ["Relu_0", "own", "Relu_1"]
    with named(model), named(model):
        assert [node.name for node in model.graph.node] == ["Relu_0", "own", "Relu_1"]
    with pytest.raises(KeyError), named(model):
        raise KeyError
    assert model.SerializeToString() == before


def test_a_second_thread_waits_and_finds_names() -> None:
    """It would lose those that the first one takes away."""
    model, inside = nameless(), Event()
    found: list[str] = []

    def read() -> None:
        with named(model):
            inside.set()
            found.extend(node.name for node in model.graph.node)

    other = Thread(target=read)
    with named(model):
        other.start()
        assert not inside.wait(0.5)
    other.join()
    assert found == ["Relu_0", "own", "Relu_1"]
    assert [node.name for node in model.graph.node] == ["", "own", ""]
