"""Stages in sequence are the serial model, and that is stock TVM's, to the bit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)

import tvm  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from tvm import relay  # noqa: E402

from tests.relay.relay_cases import (  # noqa: E402
    const,
    module,
    randoms,
    small_cnn,
    stock,
    var,
)
from tvm_npu.errors import CutError  # noqa: E402
from tvm_npu.models.data import load_digits_lenet  # noqa: E402
from tvm_npu.models.shared import SharedModels, find_shared_models  # noqa: E402
from tvm_npu.pipelines.configuration import Configuration  # noqa: E402
from tvm_npu.pipelines.errors import ConfigurationError  # noqa: E402
from tvm_npu.pipelines.platform import platform_from_dict  # noqa: E402
from tvm_npu.pipelines.platform_file import load_platform  # noqa: E402
from tvm_npu.relay import partition_for_npu  # noqa: E402
from tvm_npu.relay.compile_stages import (  # noqa: E402
    CpuTarget,
    StageCompiler,
    common_target,
    compile_stages,
    host_mcpu,
    place_targets,
)
from tvm_npu.relay.cut import CutModel, cut_model  # noqa: E402
from tvm_npu.relay.frontend import from_onnx  # noqa: E402
from tvm_npu.runtime.pipeline.artifact import StageArtifact  # noqa: E402
from tvm_npu.runtime.pipeline.stage import load_stage  # noqa: E402

pytestmark = pytest.mark.relay

Array = NDArray[Any]
HOST = f"llvm -mcpu={host_mcpu()}"
ONE = CpuTarget(HOST, 1)


def run(stages: Sequence[StageArtifact], frame: Mapping[str, Array]) -> dict[str, Array]:
    """All stages in this process, one after another."""
    tensors = dict(frame)
    for artifact in stages:
        outputs = {spec.name: np.empty(spec.shape, spec.dtype) for spec in artifact.computed}
        inputs = {spec.name: tensors[spec.name] for spec in artifact.inputs}
        load_stage(artifact).run(inputs, outputs)
        tensors = {spec.name: inputs[spec.name] for spec in artifact.carried} | outputs
    return tensors


def frame_of(model: CutModel, seed: int = 0) -> dict[str, Array]:
    return {
        spec.name: randoms(seed + n, *spec.shape).astype(spec.dtype)
        for n, spec in enumerate(model.inputs)
    }


def conv(data: Any, seed: int, filters: int, size: int = 3, strides: int = 1) -> Any:
    channels = relay.frontend.common.infer_shape(data)[1]
    weight = const(randoms(seed, filters, channels, size, size) * 0.2)
    pad = size // 2
    return relay.nn.conv2d(
        data, weight, padding=(pad, pad), strides=(strides, strides), channels=filters,
        kernel_size=(size, size),
    )  # fmt: skip


def branches() -> tvm.IRModule:
    """Two inputs, a fire module, a residual block with a multiplication that could contract with
    an addition, a projection block, two outputs, one of them an early tensor."""
    x, late = var("x", (1, 4, 8, 8)), var("late", (1, 8, 4, 4))
    stem = relay.nn.relu(conv(x, 1, 8))
    squeeze = relay.nn.relu(conv(stem, 2, 4, 1))
    fire = relay.concatenate([conv(squeeze, 3, 4, 1), conv(squeeze, 4, 4)], axis=1)
    inner = conv(fire, 5, 8) * const(randoms(6, 8, 1, 1)) + const(randoms(7, 8, 1, 1))
    block = relay.sigmoid(conv(relay.nn.relu(inner), 8, 8) * const([0.3]) + fire)
    shortcut = conv(block, 9, 8, 1, 2)
    joined = relay.nn.relu(conv(relay.nn.relu(conv(block, 10, 8, 3, 2)), 11, 8) + shortcut)
    parts = relay.split(joined + late, 2, axis=2)
    last = conv(relay.nn.max_pool2d(parts[0] * parts[1], (2, 2), (2, 2)), 12, 4, 1)
    return module(relay.Tuple([relay.nn.softmax(relay.nn.batch_flatten(last)), stem]))


def digits() -> tuple[tvm.IRModule, Mapping[str, Any]]:
    return from_onnx(load_digits_lenet())


def shared(name: str) -> tuple[tvm.IRModule, Mapping[str, Any]]:
    root = find_shared_models()
    assert root is not None
    return from_onnx(SharedModels(root).load(name))


@pytest.fixture(scope="module")
def on_npu() -> tuple[tvm.IRModule, Mapping[str, Any]]:
    """Two NPU regions with a local response norm for the CPU between them."""
    mod = small_cnn(with_lrn=True)
    return partition_for_npu(mod, calibration=randoms(9, 1, 3, 12, 12)), {}


Case = tuple[CutModel, StageCompiler, dict[str, Array], list[Array]]


@pytest.fixture(scope="module")
def cases(
    on_npu: tuple[tvm.IRModule, Mapping[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Case]]:
    """A model cut and ready to compile, a frame, and what stock ``relay.build`` makes of it."""
    makers: dict[str, Callable[[], tuple[tvm.IRModule, Mapping[str, Any]]]] = {
        "digits": digits,
        "branches": lambda: (branches(), {}),
        "residual": lambda: (small_cnn(), {}),
        "npu": lambda: on_npu,
        "resnet8": lambda: shared("resnet8_cifar10"),
    }
    made: dict[str, Case] = {}

    def case(name: str) -> Case:
        if name not in made:
            mod, params = makers[name]()
            model = cut_model(mod, params, target=HOST, name=name)
            frame = frame_of(model)
            with tvm.transform.PassContext(opt_level=3):
                bound = relay.build_module.bind_params_by_name(mod["main"], dict(params))
            whole = tvm.IRModule({**dict(mod.functions.items()), mod.get_global_var("main"): bound})
            order = [v.name_hint for v in relay.transform.InferType()(whole)["main"].params]
            expected = stock(whole, [frame[key] for key in order], HOST)
            compiler = StageCompiler(model, tmp_path_factory.mktemp(name))
            made[name] = model, compiler, frame, expected
        return made[name]

    yield case


def same(model: CutModel, tensors: Mapping[str, Array], expected: Sequence[Array]) -> None:
    found = model.in_output_order(tensors)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.tobytes() == other.tobytes() and one.shape == other.shape


NAMES = ("digits", "branches", "residual", "npu", *(["resnet8"] if find_shared_models() else []))


@pytest.mark.parametrize("name", NAMES)
def test_serial_is_stock_tvm(cases: Callable[[str], Case], name: str) -> None:
    model, compiler, frame, expected = cases(name)
    same(model, run([compiler.serial(ONE)], frame), expected)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_cut_is_serial_to_the_bit(cases: Callable[[str], Case], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    model, compiler, frame, expected = cases(name)
    inner = data.draw(st.sets(st.integers(1, len(model) - 1), max_size=4)) if len(model) > 1 else ()
    edges = [0, *sorted(inner), len(model)]
    layers = tuple(b - a for a, b in zip(edges, edges[1:], strict=False))
    threads = data.draw(st.integers(1, 2))
    stages = compiler.stages(
        Configuration(layers, tuple(range(len(layers)))),
        tuple(CpuTarget(HOST, threads) for _ in layers),
    )
    assert stages[0].inputs == model.inputs
    assert set(stages[-1].outputs) == set(model.outputs)
    same(model, run(stages, frame), expected)


def test_layers_of_branches(cases: Callable[[str], Case]) -> None:
    model, _, _, _ = cases("branches")
    found = [
        [name for n in layer for name in model.graph.primitives[n].operators if "conv2d" in name]
        for layer in model.layers
    ]
    # stem, squeeze, fire's two, block's two, projection block's three, pool, last
    assert [len(names) for names in found] == [1, 1, 2, 1, 1, 3, 0, 1]
    assert [layer.macs for layer in model.chain.layers][:3] == [
        64 * 36 * 8,
        64 * 32,
        64 * (16 + 144),
    ]
    # behind the first convolution of the residual block: its result, the block's input, the stem
    # that the model returns, and the late input, whose layout was changed early
    stage = model.stage(3, 4)
    assert len(stage.outputs) == 4 and len(stage.computed) == 1
    sizes = sum(spec.size_bytes for spec in stage.outputs)
    assert model.chain.layers[3].activation_bytes == sizes == 4 * (3 * 64 * 8 + 8 * 16)
    (before,) = model.stage(2, 3).computed
    assert stage.read == (before.name,)
    assert {spec.name for spec in model.inputs} == {"x", "late"}


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
    x = var("x", (1, 8, 12, 12))
    strided = conv(x, 1, 8, 3, 2)
    grouped = relay.nn.conv2d(
        strided, const(randoms(2, 8, 1, 3, 3)), groups=8, channels=8, kernel_size=(3, 3)
    )
    model = cut_model(module(relay.nn.relu(grouped)), target=HOST)
    assert [layer.weight for layer in model.chain.layers] == [12 * 12 * 8 * 9 * 8, 6 * 6 * 9 * 8]
    assert [layer.macs for layer in model.chain.layers] == [6 * 6 * 8 * 9 * 8, 4 * 4 * 9 * 8]
    assert [layer.name for layer in model.chain.layers] == ["conv_0", "conv_1"]


def test_regions_are_layers(cases: Callable[[str], Case]) -> None:
    model, _, _, _ = cases("npu")
    regions = [model.stage(n, n + 1).regions for n in range(len(model))]
    assert regions == [1, 1]
    assert model.chain.layers[0].macs == 12 * 12 * 8 * 27


def test_nothing_is_compiled_twice(cases: Callable[[str], Case]) -> None:
    model, compiler, _, _ = cases("residual")
    one = compiler.compile(0, 2, ONE)
    assert compiler.compile(0, 2, ONE) is one
    two = compiler.compile(0, 2, CpuTarget(HOST, 2))
    assert (two.threads, two.path) == (2, one.path) and two != one
    compiler.serial(ONE)
    before = compiler.primitives.compiled
    for first in range(len(model)):
        for end in range(first + 1, len(model) + 1):
            compiler.compile(first, end, ONE)
    assert compiler.primitives.compiled == before


def test_a_fresh_process_needs_only_the_runtime(
    cases: Callable[[str], Case], tmp_path: Path
) -> None:
    model, compiler, frame, expected = cases("npu")
    stages = compiler.stages(Configuration((1, 1), (0, 1)), (ONE, ONE))
    np.save(tmp_path / "x.npy", frame["x"])
    program = (
        "import sys, numpy as np, tvm, tvm_npu.runtime\n"
        "from tvm.contrib import graph_executor\n"
        "value = np.load(sys.argv[1])\n"
        "for name, path in zip(sys.argv[3::2], sys.argv[4::2]):\n"
        "    library = tvm.runtime.load_module(path)\n"
        "    executor = graph_executor.GraphModule(library['default'](tvm.cpu()))\n"
        "    executor.run(**{name: value})\n"
        "    value = executor.get_output(0).numpy()\n"
        "np.save(sys.argv[2], value)\n"
        "assert not [name for name in sys.modules if name.startswith('tvm_npu.relay')]\n"
    )
    arguments = [part for stage in stages for part in (stage.inputs[0].name, str(stage.path))]
    result = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "x.npy", tmp_path / "y.npy", *arguments],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert np.load(tmp_path / "y.npy").tobytes() == expected[0].tobytes()
    assert len(model) == 2


def test_cores_with_the_same_arithmetic_give_the_same_bits(
    cases: Callable[[str], Case],
) -> None:
    """Layouts are chosen once; vectors of another width change no order of additions."""
    features = Path("/proc/cpuinfo").read_text()
    if "fma" not in features or "avx2" not in features:
        pytest.skip("this processor has no fused multiply-add")
    model, compiler, frame, expected = cases("residual")
    stages = compiler.stages(
        Configuration((1, len(model) - 1), (0, 1)), (CpuTarget("llvm -mcpu=haswell", 1), ONE)
    )
    same(model, run(stages, frame), expected)


def test_compile_stages_for_a_platform(tmp_path: Path) -> None:
    place = {"kind": "real", "core_ids": [0], "mcpu": "haswell"}
    platform = platform_from_dict(
        {
            "name": "two",
            "places": [{**place, "name": "a"}, {**place, "name": "b", "core_ids": [1, 2]}],
        }
    )
    mod = small_cnn()
    stages = compile_stages(mod, None, Configuration((2, 3), (1, 0)), platform, tmp_path)
    assert [stage.threads for stage in stages] == [2, 1]
    assert all(stage.path is not None and stage.path.is_file() for stage in stages)
    with pytest.raises(ConfigurationError, match="hold 4 layers; the chain has 5"):
        compile_stages(mod, None, Configuration((2, 2), (1, 0)), platform, tmp_path)
    with pytest.raises(ConfigurationError, match="stage 1 is on place 2"):
        compile_stages(mod, None, Configuration((2, 3), (1, 2)), platform, tmp_path)


def test_targets_of_places() -> None:
    place = {"kind": "real", "core_ids": [0]}
    platform = platform_from_dict(
        {
            "name": "two",
            "places": [
                {**place, "name": "wide", "mcpu": "skylake-avx512", "core_ids": [1, 2]},
                {**place, "name": "narrow", "mcpu": "nehalem"},
                {**place, "name": "own", "core_ids": [5]},
            ],
        }
    )
    targets = place_targets(platform)
    assert [one.threads for one in targets] == [2, 1, 1]
    assert targets[2].target == HOST
    assert common_target(targets) == "llvm -mcpu=nehalem"
    with pytest.raises(CutError, match="platform shisha-c1 has simulated places"):
        place_targets(load_platform("shisha-c1"))


def test_what_cannot_be_cut(cases: Callable[[str], Case]) -> None:
    x = var("x", (1, 4))
    with pytest.raises(CutError, match="no operator"):
        cut_model(module(x))
    with pytest.raises(CutError, match="has a If: only plain dataflow"):
        cut_model(module(relay.If(var("c", (), "bool"), x, relay.nn.relu(x))))
    with pytest.raises(CutError, match="stages need static shapes"):
        cut_model(module(relay.nn.relu(var("x", (1, relay.Any())))))
    with pytest.raises(CutError, match="output of the model is a constant"):
        cut_model(module(relay.Tuple([relay.nn.relu(x), const([1.0])])))
    with pytest.raises(CutError, match="no function 'main'"):
        cut_model(tvm.IRModule())
    # TVM 0.19 blocks channels and cannot split blocks
    halves = relay.split(conv(var("x", (1, 4, 8, 8)), 1, 8), 2, axis=1)
    with pytest.raises(CutError, match="TVM cannot compile the model: .*indices_or_sections"):
        cut_model(module(relay.nn.relu(conv(halves[0], 2, 4))), target=HOST)
    model, _, _, _ = cases("residual")
    with pytest.raises(CutError, match="layers 2 to 5 are no stage: the chain has layers 0 to 4"):
        model.stage(2, 6)
    with pytest.raises(ConfigurationError, match="hold 3; the chain has 5"):
        model.stages((1, 2))


def test_a_model_without_work_is_one_layer() -> None:
    x = var("x", (1, 4))
    model = cut_model(module(relay.nn.softmax(relay.nn.relu(x))), target=HOST)
    assert len(model) == 1 and model.chain.layers[0].weight == 0
    with StageCompiler(model) as compiler:
        value = randoms(3, 1, 4)
        (found,) = run([compiler.serial(ONE)], {"x": value}).values()
        (expected,) = stock(module(relay.nn.softmax(relay.nn.relu(x))), [value], HOST)
        assert found.tobytes() == expected.tobytes()
        folder = compiler.folder
        assert folder.is_dir()
    assert not folder.exists()
