"""Stages in sequence are the serial model, and that is the whole model as the installed door's TVM
builds it, to the bit.

Run once in an environment with Relay's TVM and once in one with Relax's.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tvm_npu
from tests.examples import examples
from tests.patience import PATIENCE_S
from tvm_npu import processors
from tvm_npu.door.find import door
from tvm_npu.door.models import import_onnx
from tvm_npu.errors import CutError, TargetError
from tvm_npu.models.data import load_digits_lenet
from tvm_npu.options import make_options
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.cut import CutModel
from tvm_npu.pipelines.errors import ConfigurationError, PlatformError
from tvm_npu.pipelines.platform import platform_from_dict
from tvm_npu.pipelines.platform_file import load_platform
from tvm_npu.pipelines.stage_compiler import (
    CpuTarget,
    StageCompiler,
    host_target,
    place_targets,
)
from tvm_npu.runtime.pipeline.artifact import StageArtifact
from tvm_npu.runtime.pipeline.stage import load_stage

tvm = pytest.importorskip("tvm", reason="neither the relay nor the relax extra is installed")

Array = NDArray[Any]
DOOR = door()
ONE = host_target(DOOR)


def randoms(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(stages: Sequence[StageArtifact], frame: Mapping[str, Array]) -> dict[str, Array]:
    """All stages in this process, one after another."""
    tensors = dict(frame)
    for artifact in stages:
        outputs = {spec.name: np.empty(spec.shape, spec.dtype) for spec in artifact.computed}
        inputs = {spec.name: tensors[spec.name] for spec in artifact.inputs}
        load_stage(artifact).run(inputs, outputs)
        tensors = {spec.name: inputs[spec.name] for spec in artifact.carried} | outputs
    return tensors


class Network:
    """An ONNX model in the making."""

    def __init__(self, **inputs: tuple[int, ...]) -> None:
        self.inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ]
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """The tensor ``t<n>`` that node n returns; with ``outputs`` of several ``t<n>.0``, ..."""
        name = f"t{len(self.nodes)}"
        names = [name] if outputs == 1 else [f"{name}.{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=name, **attributes))
        return name

    def weight(self, values: Array) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def conv(
        self, data: str, seed: int, channels: int, filters: int, size: int = 3, stride: int = 1,
        group: int = 1,
    ) -> str:  # fmt: skip
        weight = self.weight(randoms(seed, filters, channels // group, size, size) * 0.2)
        pads = [size // 2] * 4
        return self.add(
            "Conv", data, weight, pads=pads, strides=[stride] * 2, kernel_shape=[size] * 2,
            group=group,
        )  # fmt: skip

    def model(self, *outputs: str) -> ModelProto:
        found = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "network", self.inputs, found, self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
        made.ir_version = 8
        return made


def branches() -> ModelProto:
    """Two inputs, a fire module, a residual block with a multiplication that could contract with
    an addition, a projection block, two outputs, one of them an early tensor."""
    net = Network(x=(1, 4, 8, 8), late=(1, 8, 4, 4))
    stem = net.add("Relu", net.conv("x", 1, 4, 8))
    squeeze = net.add("Relu", net.conv(stem, 2, 8, 4, 1))
    fire = net.add("Concat", net.conv(squeeze, 3, 4, 4, 1), net.conv(squeeze, 4, 4, 4), axis=1)
    inner = net.add("Mul", net.conv(fire, 5, 8, 8), net.weight(randoms(6, 1, 8, 1, 1)))
    inner = net.add("Add", inner, net.weight(randoms(7, 1, 8, 1, 1)))
    scaled = net.conv(net.add("Relu", inner), 8, 8, 8)
    scaled = net.add("Mul", scaled, net.weight(np.full((1,), 0.3)))
    block = net.add("Sigmoid", net.add("Add", scaled, fire))
    shortcut = net.conv(block, 9, 8, 8, 1, 2)
    joined = net.conv(net.add("Relu", net.conv(block, 10, 8, 8, 3, 2)), 11, 8, 8)
    joined = net.add("Relu", net.add("Add", joined, shortcut))
    parts = net.add("Split", net.add("Add", joined, "late"), outputs=2, axis=2)
    product = net.add("Mul", f"{parts}.0", f"{parts}.1")
    pool = net.add("MaxPool", product, kernel_shape=[2, 2], strides=[2, 2])
    flat = net.add("Flatten", net.conv(pool, 12, 8, 4, 1))
    return net.model(net.add("Softmax", flat, axis=1), stem)


def residual(between: str = "Relu") -> ModelProto:
    """Convolution, ``between``, pooling, residual block, fully connected, softmax."""
    net = Network(x=(1, 3, 12, 12))
    first = net.add(between, net.add("Relu", net.conv("x", 0, 3, 8)))
    pool = net.add("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2])
    block = net.add("Relu", net.add("Add", net.conv(pool, 2, 8, 8), pool))
    flat = net.add("Flatten", net.add("GlobalAveragePool", block))
    dense = net.add("Gemm", flat, net.weight(randoms(3, 8, 5)), net.weight(randoms(4, 5)))
    return net.model(net.add("Softmax", dense, axis=1))


MODELS: dict[str, Callable[[], ModelProto]] = {
    "digits": load_digits_lenet,
    "branches": branches,
    "residual": residual,
    "npu": lambda: residual("Cos"),
}
Case = tuple[CutModel, StageCompiler, dict[str, Array], list[Array]]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """A model cut and ready to compile, a frame, and what the door's own build makes of it; of
    ``npu`` two regions run on an NPU, and a cosine between them on the CPU."""
    made: dict[str, Case] = {}

    def case(name: str) -> Case:
        if name not in made:
            imported = import_onnx(MODELS[name](), {})
            mod, params = imported.mod, imported.params
            frame = {
                spec.name: randoms(n, *spec.shape).astype(spec.dtype)
                for n, spec in enumerate(imported.inputs)
            }
            if name == "npu":
                mod, params = imported.partition(make_options("nmp-4x8"), [frame]).mod, {}
            model = DOOR.cut(mod, params, target=ONE.target, name=name)
            expected = DOOR.build(mod, params, ONE.target, 3).run(frame)
            compiler = StageCompiler(DOOR, model, tmp_path_factory.mktemp(name))
            made[name] = model, compiler, frame, expected
        return made[name]

    return case


def same(model: CutModel, tensors: Mapping[str, Array], expected: Sequence[Array]) -> None:
    found = model.in_output_order(tensors)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.tobytes() == other.tobytes() and one.shape == other.shape


@pytest.mark.parametrize("name", MODELS)
def test_serial_is_the_whole_model(cases: Callable[[str], Case], name: str) -> None:
    model, compiler, frame, expected = cases(name)
    same(model, run([compiler.serial(ONE)], frame), expected)


@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_any_cut_is_serial_to_the_bit(cases: Callable[[str], Case], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(MODELS)))
    model, compiler, frame, expected = cases(name)
    inner = data.draw(st.sets(st.integers(1, len(model) - 1), max_size=4))
    edges = [0, *sorted(inner), len(model)]
    layers = tuple(b - a for a, b in zip(edges, edges[1:], strict=False))
    threads = data.draw(st.integers(1, 2))
    stages = compiler.stages(
        Configuration(layers, tuple(range(len(layers)))),
        tuple(CpuTarget(ONE.target, threads) for _ in layers),
    )
    assert stages[0].inputs == model.inputs
    assert set(stages[-1].outputs) == set(model.outputs)
    same(model, run(stages, frame), expected)


def test_work_by_the_equations(cases: Callable[[str], Case]) -> None:
    """Digits LeNet, by hand: H*W*C*R*S*K of the input, a pool's inputs, H*W*C*F; weights with
    biases as float32; what is behind a layer."""
    model, _, _, _ = cases("digits")
    assert [
        (layer.name, layer.weight, layer.macs, layer.parameter_bytes, layer.activation_bytes)
        for layer in model.chain.layers
    ] == [
        ("conv1", 8 * 8 * 1 * 3 * 3 * 16, 9216, 4 * (144 + 16), 4 * 8 * 8 * 16),
        ("pool1", 8 * 8 * 16, 0, 0, 4 * 4 * 4 * 16),
        ("conv2", 4 * 4 * 16 * 3 * 3 * 32, 73728, 4 * (4608 + 32), 4 * 4 * 4 * 32),
        ("pool2", 4 * 4 * 32, 0, 0, 4 * 2 * 2 * 32),
        ("fc1", 2 * 2 * 32 * 64, 8192, 4 * (8192 + 64), 4 * 64),
        ("logits", 64 * 10, 640, 4 * (640 + 10), 4 * 10),
    ]
    assert [layer.source for layer in model.chain.layers][::4] == [("conv1",), ("fc1",)]


def test_stride_and_groups_in_the_equations() -> None:
    net = Network(x=(1, 8, 12, 12))
    grouped = net.conv(net.conv("x", 1, 8, 8, 3, 2), 2, 8, 8, group=8)
    imported = import_onnx(net.model(net.add("Relu", grouped)), {})
    model = DOOR.cut(imported.mod, imported.params, target=ONE.target, name="strided")
    assert [layer.weight for layer in model.chain.layers] == [12 * 12 * 8 * 9 * 8, 6 * 6 * 9 * 8]
    assert [layer.macs for layer in model.chain.layers] == [6 * 6 * 8 * 9 * 8, 6 * 6 * 9 * 8]
    assert [layer.name for layer in model.chain.layers] == ["t0", "t1"]


def test_equal_functions_keep_their_own_names() -> None:
    """TVM compiles these two convolutions of one input as one function."""
    net = Network(x=(1, 8, 6, 6))
    twins = net.conv("x", 1, 8, 8), net.conv("x", 2, 8, 8)
    imported = import_onnx(net.model(net.conv(net.add("Concat", *twins, axis=1), 3, 16, 8)), {})
    model = DOOR.cut(imported.mod, imported.params, target=ONE.target, name="twins")
    assert [sorted(layer.source) for layer in model.chain.layers] == [["t0", "t1"], ["t3"]]


def test_branches_stay_in_one_layer(cases: Callable[[str], Case]) -> None:
    model, _, _, _ = cases("branches")
    assert [sorted(layer.source) for layer in model.chain.layers][1:3] == [["t2"], ["t4", "t5"]]
    # behind the first convolution of the residual block: its result, the block's input, the stem
    # that the model returns, and the late input
    first = [layer.source for layer in model.chain.layers].index(("t7",))
    stage = model.stage(first, first + 1)
    assert len(stage.outputs) == 4 and len(stage.computed) == 1
    sizes = sum(spec.size_bytes for spec in stage.outputs)
    assert model.chain.layers[first].activation_bytes == sizes == 4 * (3 * 64 * 8 + 8 * 16)
    (before,) = model.stage(first - 1, first).computed.values()
    assert [spec.name for spec in stage.read.values()] == [before.name]
    assert {spec.name for spec in model.inputs} == {"x", "late"}


def test_regions_are_layers(cases: Callable[[str], Case]) -> None:
    model, _, _, _ = cases("npu")
    regions = [model.stage(n, n + 1).regions for n in range(len(model))]
    assert regions == [1, 1]
    assert model.chain.layers[0].macs == 12 * 12 * 8 * 27


def test_nothing_is_compiled_twice(cases: Callable[[str], Case]) -> None:
    model, compiler, _, _ = cases("residual")
    one = compiler.compile(0, 2, ONE)
    assert compiler.compile(0, 2, ONE) is one
    two = compiler.compile(0, 2, CpuTarget(ONE.target, 2))
    assert (two.threads, two.path) == (2, one.path) and two != one
    compiler.serial(ONE)
    before = compiler.libraries.compiled
    for first in range(len(model)):
        compiler.compile(first, first + 1, ONE)
        compiler.compile(first, len(model), ONE)
    assert compiler.libraries.compiled == before > 0


def test_a_fresh_process_needs_only_the_runtime(
    cases: Callable[[str], Case], tmp_path: Path
) -> None:
    model, compiler, frame, expected = cases("npu")
    stages = compiler.stages(Configuration((1, len(model) - 1), (0, 1)), (ONE, ONE))
    np.save(tmp_path / "x.npy", frame["x"])
    program = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from tvm_npu.runtime.pipeline.artifact import StageArtifact, TensorSpec\n"
        "from tvm_npu.runtime.pipeline.stage import load_stage\n"
        "from tvm_npu.sim.limits import Limits\n"
        "value = np.load(sys.argv[1])\n"
        f"for stage in {stages!r}:\n"
        "    (taken,), (made,) = stage.inputs, stage.outputs\n"
        "    outputs = {made.name: np.empty(made.shape, made.dtype)}\n"
        "    load_stage(stage).run({taken.name: value}, outputs)\n"
        "    value = outputs[made.name]\n"
        "np.save(sys.argv[2], value)\n"
        "doors = ('tvm_npu.door', 'tvm_npu.relay', 'tvm_npu.relax')\n"
        "assert not [name for name in sys.modules if name.startswith(doors)]\n"
    ).replace("PosixPath", "Path")
    result = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "x.npy", tmp_path / "y.npy"],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert np.load(tmp_path / "y.npy").tobytes() == expected[0].tobytes()


def test_cores_with_the_same_arithmetic_give_the_same_bits(
    cases: Callable[[str], Case],
) -> None:
    """Layouts are chosen once; vectors of another width change no order of additions."""
    features = Path("/proc/cpuinfo").read_text()
    if "fma" not in features or "avx2" not in features:
        pytest.skip("this processor has no fused multiply-add")
    model, compiler, frame, expected = cases("residual")
    stages = compiler.stages(
        Configuration((1, len(model) - 1), (0, 1)), (CpuTarget(DOOR.cpu_target("haswell"), 1), ONE)
    )
    same(model, run(stages, frame), expected)
    assert compiler.compile(0, 1, ONE).path != stages[0].path


def test_targets_of_places() -> None:
    place = {"kind": "real", "core_ids": [0]}
    two = platform_from_dict(
        {
            "name": "two",
            "places": [
                {**place, "name": "narrow", "mcpu": "nehalem", "core_ids": [1, 2]},
                {**place, "name": "own", "core_ids": [5]},
            ],
        }
    )
    targets = place_targets(DOOR, two)
    assert [one.threads for one in targets] == [2, 1]
    assert "nehalem" in targets[0].target and targets[1].target == ONE.target
    assert DOOR.common_target([one.target for one in targets]) == targets[0].target
    with pytest.raises(CutError, match="platform shisha-c1 has simulated places"):
        place_targets(DOOR, load_platform("shisha-c1"))


@pytest.mark.parametrize(
    ("mcpu", "message"),
    [
        ("nosuchcpu", "mcpu 'nosuchcpu' is none of the [0-9]+ processors that LLVM knows"),
        ("haswel", "mcpu 'haswel' is none of .*; did you mean 'haswell'[?]"),
        ("i386", "mcpu 'i386' is a processor of 32 bits; code for this machine is of 64"),
    ],
)
def test_a_place_of_a_processor_that_is_none_here(mcpu: str, message: str) -> None:
    """LLVM makes slow code for the first two without a word, and ends the process at the third."""
    if platform.machine() != "x86_64":
        pytest.skip("names of x86 processors")
    place = {"kind": "real", "name": "wrong", "core_ids": [0], "mcpu": mcpu}
    one = platform_from_dict({"name": "one", "places": [place]})
    with pytest.raises(PlatformError, match=f"^platform one: place wrong: {message}"):
        place_targets(DOOR, one)
    with pytest.raises(TargetError, match=f"^{message}"):
        tvm_npu.target("nmp-4x8", mcpu=mcpu)


def test_a_place_that_this_machine_cannot_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its code would end the process that runs it; code for others may be made."""
    if platform.machine() != "x86_64":
        pytest.skip("names of x86 processors")
    place = {"kind": "real", "name": "wrong", "core_ids": [0], "mcpu": "haswell"}
    one = platform_from_dict({"name": "one", "places": [place]})
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(processors, "_CPU_INFO", info)
    flags = "pni ssse3 sse4_1 sse4_2 popcnt"
    info.write_text(f"processor : 0\nflags : fpu {flags}\n")
    own = re.escape(repr(processors.host_processor()))
    lacks = "avx, avx2, fma, f16c, bmi, bmi2, lzcnt, movbe"
    text = f"^platform one: place wrong: mcpu 'haswell' has {lacks}, which this .*, {own}, lacks"
    with pytest.raises(PlatformError, match=text):
        place_targets(DOOR, one)
    tvm_npu.target("nmp-4x8", mcpu="haswell")
    info.write_text(f"flags : {flags} avx avx2 fma f16c bmi1 bmi2 abm movbe\n")
    assert "haswell" in place_targets(DOOR, one)[0].target


@pytest.mark.parametrize(
    ("mtriple", "mcpu", "message"),
    [
        ("aarch64-linux-gnu", "cortex-a72", None),
        ("aarch64-linux-gnu", "haswell", "is none of .* the architecture of 'aarch64-linux-gnu'"),
        ("x86_64-linux-gnu", "haswel", "is none of .*; did you mean 'haswell'[?]$"),
        ("x86_64-linux-gnu", "i386", "is a processor of 32 bits; code for 'x86_64-linux-gnu' is"),
        ("i386-linux-gnu", "i386", None),
    ],
)
def test_processors_of_other_machines(mtriple: str, mcpu: str, message: str | None) -> None:
    known = map(str, tvm.get_global_func("target.llvm_get_targets")())
    if mtriple.partition("-")[0] not in known:
        pytest.skip("TVM's LLVM here makes no code for it")
    if message is None:
        assert tvm_npu.target("nmp-4x8", mcpu=mcpu, mtriple=mtriple).attrs["mcpu"] == mcpu
        return
    with pytest.raises(TargetError, match=f"^mcpu '{mcpu}' {message}"):
        tvm_npu.target("nmp-4x8", mcpu=mcpu, mtriple=mtriple)


def test_what_is_no_stage(cases: Callable[[str], Case]) -> None:
    model, _, _, _ = cases("residual")
    count = len(model)
    with pytest.raises(CutError, match=f"the chain has layers 0 to {count - 1}"):
        model.stage(2, count + 1)
    with pytest.raises(ConfigurationError, match=f"hold 3; the chain has {count}"):
        model.stages((1, 2))


def test_a_model_without_work_is_one_layer() -> None:
    net = Network(x=(1, 4))
    imported = import_onnx(net.model(net.add("Softmax", net.add("Relu", "x"), axis=1)), {})
    model = DOOR.cut(imported.mod, imported.params, target=ONE.target, name="small")
    assert len(model) == 1 and model.chain.layers[0].weight == 0
    with StageCompiler(DOOR, model) as compiler:
        frame = {"x": randoms(3, 1, 4)}
        (found,) = run([compiler.serial(ONE)], frame).values()
        (expected,) = DOOR.build(imported.mod, imported.params, ONE.target, 3).run(frame)
        assert found.tobytes() == expected.tobytes()
        folder = compiler.folder
        assert folder.is_dir()
    assert not folder.exists()


@pytest.mark.parametrize("mattr", ["+avx2", ["avx2"], ["+"], ["+avx2,fma"], ["+avx2", 3], 3])
def test_features_that_llvm_cannot_read(mattr: Any) -> None:
    with pytest.raises(TargetError, match=r"^mattr .*; expected a list of features"):
        tvm_npu.target("nmp-4x8", mattr=mattr)
    target = tvm_npu.target("nmp-4x8", mcpu="nehalem", mattr=["+avx2", "-sse4.2"])
    assert list(target.attrs["mattr"]) == ["+avx2", "-sse4.2"]
    assert "mattr" not in tvm_npu.target("nmp-4x8", mcpu="nehalem").attrs
