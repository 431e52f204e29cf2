"""ONNX's shape inference in a process of its own: what ends it is an error that names the node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tvm_npu.door import shape_inference
from tvm_npu.door.onnx.model import read_model
from tvm_npu.door.shape_inference import infer_shapes
from tvm_npu.errors import PartitionError

FLOAT = onnx.TensorProto.FLOAT


def model_of(node: onnx.NodeProto, **constants: np.ndarray) -> onnx.ModelProto:
    """``node`` reads constants, and what it makes is the model's output."""
    graph = helper.make_graph(
        [node], "g", [], [helper.make_tensor_value_info(node.output[0], FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])


def one_hot() -> onnx.ModelProto:
    """Of how many classes, no element says."""
    return model_of(
        helper.make_node("OneHot", ["i", "n", "v"], ["y"], name="hot"),
        i=np.array([3]), n=np.zeros((3, 0), np.int64), v=np.zeros(2, np.float32),
    )  # fmt: skip


FORGED = {
    "OneHot 'hot'": one_hot,
    "ConvTranspose 'up'": lambda: model_of(
        helper.make_node("ConvTranspose", ["x", "w"], ["y"], name="up"),
        x=np.zeros((1, 3, 4, 4), np.float32), w=np.array(0.5, np.float32),
    ),
    "DepthToSpace 'deep'": lambda: model_of(
        helper.make_node("DepthToSpace", ["x"], ["y"], name="deep", blocksize=1 << 40),
        x=np.zeros((1, 4, 2, 2), np.float32),
    ),
}  # fmt: skip


def crashes(model: onnx.ModelProto) -> bool:
    """The inference of the installed onnx."""
    code = "import onnx, sys; onnx.shape_inference.infer_shapes(sys.stdin.buffer.read())"
    ended = subprocess.run([sys.executable, "-c", code], input=model.SerializeToString())
    return ended.returncode < 0


def test_a_process_that_crashes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert extent(sound()) == 7
    process = shape_inference._ASKED._process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)  # it does not answer before it is killed
    real = shape_inference.shape_process.write_parts

    def killed(*arguments: Any) -> None:
        real(*arguments)
        os.kill(process.pid, signal.SIGKILL)

    monkeypatch.setattr(shape_inference.shape_process, "write_parts", killed)
    with pytest.raises(PartitionError, match=r"the model: ONNX's .* crashes there \(SIGKILL\): "):
        infer_shapes(sound(), has_values=False)
    monkeypatch.undo()
    assert extent(sound()) == 7


@pytest.mark.parametrize("name", FORGED)
def test_forged_nodes_are_errors(name: str) -> None:
    if not crashes(FORGED[name]()):
        pytest.skip("the installed onnx answers")
    with pytest.raises(PartitionError) as caught:
        read_model(FORGED[name]())
    assert str(caught.value).startswith(f"{name}: ONNX's shape inference crashes there (SIG")
    whole = FORGED[name]()
    with pytest.raises(PartitionError, match="the model: ONNX's shape inference crashes"):
        infer_shapes(whole, has_values=False)
    assert read_model(sound()) is not None


def sound() -> onnx.ModelProto:
    return model_of(
        helper.make_node("Concat", ["a", "b"], ["y"], axis=0),
        a=np.zeros(3, np.float32), b=np.ones(4, np.float32),
    )  # fmt: skip


def extent(model: onnx.ModelProto) -> int:
    (value,) = infer_shapes(model, has_values=False).graph.output
    return int(value.type.tensor_type.shape.dim[0].dim_value)


def test_an_interrupt_leaves_no_answer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next question gets its own answer."""
    assert extent(sound()) == 7
    real = shape_inference.select.select

    def interrupted(*arguments: object) -> object:
        monkeypatch.setattr(shape_inference.select, "select", real)
        raise KeyboardInterrupt

    monkeypatch.setattr(shape_inference.select, "select", interrupted)
    with pytest.raises(KeyboardInterrupt):
        infer_shapes(one_hot_free(), has_values=False)
    assert extent(sound()) == 7


def one_hot_free() -> onnx.ModelProto:
    return model_of(
        helper.make_node("Concat", ["a", "a"], ["y"], axis=0), a=np.zeros(3, np.float32)
    )


def test_a_process_that_sleeps_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert extent(sound()) == 7
    process = shape_inference._ASKED._process
    assert process is not None
    monkeypatch.setattr(shape_inference, "MOST_SECONDS", 0.2)
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(PartitionError, match=r"the model: .* does not end within 0.2 s"):
        infer_shapes(sound(), has_values=False)
    assert process.poll() is not None
    monkeypatch.undo()
    assert extent(sound()) == 7


def test_what_has_forked_asks_a_process_of_its_own() -> None:
    assert extent(sound()) == 7
    process = shape_inference._ASKED._process
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        found = b"no"
        try:
            if extent(sound()) == 7 and shape_inference._ASKED._process is not process:
                found = b"yes"
        finally:
            os.write(theirs, found)
            shape_inference._ASKED.close()
            os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    assert os.read(ours, 9) == b"yes"
    os.close(ours)
    assert extent(sound()) == 7
    assert shape_inference._ASKED._process is process


def test_it_ends_with_its_parent() -> None:
    """However that ends."""
    code = (
        "import os, sys\n"
        "from tests.door.test_shape_inference import extent, shape_inference, sound\n"
        "assert extent(sound()) == 7\n"
        "print(shape_inference._ASKED._process.pid, flush=True)\n"
        "if sys.argv[1] == 'killed': os.kill(os.getpid(), 9)\n"
    )
    for how in ("killed", "done"):
        ended = subprocess.run(
            [sys.executable, "-c", code, how], stdout=subprocess.PIPE, text=True, check=False
        )
        assert ended.returncode == (-9 if how == "killed" else 0)
        _await_end(int(ended.stdout))


def _await_end(pid: int) -> None:
    """Whoever takes on orphans may not have waited for it: a zombie has ended, too."""
    while True:
        try:
            state = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state in "ZX":
            return
