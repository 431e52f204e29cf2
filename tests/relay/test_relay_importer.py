"""Each Relay operator, imported and run as a float graph, against stock TVM's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)
from tvm import relay  # noqa: E402

from tests.door.flows import all_layers  # noqa: E402
from tests.relay.relay_cases import const, float_region, module, randoms, split, stock, var  # noqa: E402
from tvm_npu.codegen.ops import Conv2d, Pool, ScaleShift  # noqa: E402
from tvm_npu.codegen.passes.fuse import fuse  # noqa: E402
from tvm_npu.door.layers import MAKES  # noqa: E402
from tvm_npu.errors import ImportRegionError  # noqa: E402
from tvm_npu.relay import import_region  # noqa: E402
from tvm_npu.relay.door import DOOR  # noqa: E402

pytestmark = pytest.mark.relay

SHAPE = (2, 6, 7, 9)


def conv(x: Any, m: int, n: int, k: tuple[int, int], **attrs: Any) -> Any:
    weight = const(randoms(3, m, n, *k))
    return relay.nn.conv2d(x, weight, channels=m, kernel_size=k, **attrs)


def transposed(x: Any, m: int, k: tuple[int, int], groups: int = 1, **attrs: Any) -> Any:
    weight = const(randoms(3, 6, m, *k))
    return relay.nn.conv2d_transpose(
        x, weight, channels=m * groups, kernel_size=k, groups=groups, **attrs
    )


def norm(x: Any, **attrs: Any) -> Any:
    gamma, beta, mean = (const(randoms(seed, 6)) for seed in (4, 5, 6))
    variance = const(np.abs(randoms(7, 6)) + 0.5)
    return relay.nn.batch_norm(x, gamma, beta, mean, variance, **attrs)[0]


def pool(kind: str, **attrs: Any) -> Callable[[Any], Any]:
    operator = relay.nn.max_pool2d if kind == "max" else relay.nn.avg_pool2d
    return lambda x: operator(x, **attrs)


def resize(x: Any, size: tuple[int, int], method: str, *ways: str) -> Any:
    return relay.image.resize2d(norm(x), size, None, "NCHW", method, *ways)


per_channel = randoms(8, 6, 1, 1)
CASES: dict[str, Callable[[Any], Any]] = {
    "conv": lambda x: conv(x, 4, 6, (3, 3)),
    "conv-stride-pad": lambda x: conv(x, 4, 6, (3, 2), strides=(2, 1), padding=(1, 0, 2, 1)),
    "conv-pad-2": lambda x: conv(x, 4, 6, (3, 3), padding=(2, 1)),
    "conv-dilated": lambda x: conv(x, 4, 6, (3, 3), dilation=(2, 3)),
    "conv-groups": lambda x: conv(x, 4, 3, (1, 1), groups=2),
    "conv-depthwise": lambda x: conv(x, 12, 1, (3, 3), groups=6, padding=(1, 1)),
    "bias": lambda x: relay.nn.bias_add(conv(x, 6, 6, (1, 1)), const(randoms(9, 6))),
    "batch-norm": lambda x: norm(x),
    "batch-norm-plain": lambda x: norm(x, scale=False, center=False, epsilon=0.1),
    "relu": lambda x: relay.nn.relu(norm(x)),
    "leaky-relu": lambda x: relay.nn.leaky_relu(norm(x), 0.1),
    "leaky-relu-flat": lambda x: relay.nn.leaky_relu(relay.mean(x, axis=(2, 3)), 0.25),
    "leaky-relu-line": lambda x: relay.nn.leaky_relu(norm(x), 1.0),
    "clip": lambda x: relay.clip(norm(x), -0.5, 0.75),
    "maximum": lambda x: relay.maximum(const(0.25), norm(x)),
    "minimum": lambda x: relay.minimum(norm(x), const(0.25)),
    "sigmoid": lambda x: relay.sigmoid(norm(x)),
    "tanh-flat": lambda x: relay.tanh(norm(relay.mean(x, axis=(2, 3)))),
    "maximum-of-two": lambda x: relay.maximum(norm(x), conv(x, 6, 6, (1, 1))),
    "subtract-tensors": lambda x: relay.subtract(norm(x), relay.nn.relu(x)),
    "feature-map": lambda x: relay.maximum(*relay.split(conv(x, 8, 6, (3, 3)), 2, axis=1)),
    "reflect": lambda x: relay.nn.pad(
        norm(x), ((0, 0), (0, 0), (2, 1), (0, 8)), pad_mode="reflect"
    ),
    "mirror": lambda x: relay.nn.mirror_pad(
        norm(x), ((0, 0), (0, 0), (6, 0), (1, 3)), mode="REFLECT"
    ),
    "transposed": lambda x: transposed(x, 4, (3, 2)),
    "transposed-stride": lambda x: transposed(
        x, 4, (4, 3), strides=(2, 3), padding=(1, 0, 2, 1), output_padding=(1, 2)
    ),
    "transposed-groups": lambda x: transposed(x, 3, (3, 3), groups=2, strides=(2, 2)),
    "max-pool": pool("max", pool_size=(3, 2), strides=(2, 1), padding=(1, 0, 0, 1)),
    "max-pool-ceil": pool("max", pool_size=(2, 2), strides=(2, 2), ceil_mode=True),
    "max-pool-ceil-3": pool("max", pool_size=(3, 3), strides=(2, 2), ceil_mode=True),
    "max-pool-ceil-pad": pool(
        "max", pool_size=(3, 3), strides=(2, 2), padding=(1, 1), ceil_mode=True
    ),
    "avg-pool": pool("avg", pool_size=(3, 3), strides=(2, 2), padding=(1, 1)),
    "avg-pool-count": pool(
        "avg", pool_size=(3, 3), strides=(2, 2), padding=(1, 1), count_include_pad=True
    ),
    "avg-pool-ceil": pool(
        "avg", pool_size=(2, 2), strides=(2, 2), ceil_mode=True, count_include_pad=False
    ),
    "avg-pool-ceil-count": pool(
        "avg",
        pool_size=(2, 2),
        strides=(2, 2),
        padding=(1, 1, 0, 0),
        ceil_mode=True,
        count_include_pad=True,
    ),
    "avg-pool-ceil-count-over": pool(
        "avg",
        pool_size=(3, 4),
        strides=(3, 3),
        padding=(1, 1, 0, 1),
        ceil_mode=True,
        count_include_pad=True,
    ),
    "global-avg": relay.nn.global_avg_pool2d,
    "global-max": relay.nn.global_max_pool2d,
    "adaptive-avg": lambda x: relay.nn.adaptive_avg_pool2d(x, (1, 1)),
    "mean": lambda x: relay.mean(x, axis=(2, 3)),
    "mean-keep": lambda x: relay.mean(x, axis=(-1, -2), keepdims=True),
    "add": lambda x: relay.add(norm(x), x),
    "multiply": lambda x: relay.multiply(norm(x), x),
    "add-constant": lambda x: relay.add(x, const(per_channel)),
    "add-constant-left": lambda x: relay.add(const(per_channel[None]), x),
    "add-scalar": lambda x: relay.add(x, const(0.5)),
    "add-uniform": lambda x: relay.add(x, const(np.broadcast_to(per_channel, (1, 6, 7, 9)))),
    "multiply-constant": lambda x: relay.multiply(x, const(per_channel)),
    "subtract": lambda x: relay.subtract(x, const(per_channel)),
    "subtract-left": lambda x: relay.subtract(const(per_channel), x),
    "divide": lambda x: relay.divide(x, const(np.abs(per_channel) + 1)),
    "negative": lambda x: relay.negative(norm(x)),
    "concatenate": lambda x: relay.concatenate([norm(x), x, conv(x, 2, 6, (1, 1))], axis=-3),
    "split": lambda x: relay.add(*list(relay.split(norm(x), 2, axis=1))),
    "split-at": lambda x: norm(
        relay.concatenate(list(reversed(list(relay.split(x, (1, 4), axis=1)))), axis=1)
    ),
    "pad": lambda x: relay.nn.pad(norm(x), ((0, 0), (2, 1), (0, 3), (1, 0)), pad_value=1.5),
    "pad-integer-fill": lambda x: relay.nn.pad(norm(x), ((0, 0), (0, 0), (1, 1), (1, 1))),
    "slice-channels": lambda x: norm(
        relay.strided_slice(conv(x, 9, 6, (1, 1)), [2], [8], axes=[1])
    ),
    "slice-space": lambda x: relay.strided_slice(
        norm(x), [0, 0, 1, -9], [2, 6, -1, 9999], strides=[1, 1, 2, 3]
    ),
    "slice-size": lambda x: relay.strided_slice(
        norm(x), [0, 1, 2, 0], [-1, 3, 4, -1], slice_mode="size"
    ),
    "flatten-dense": lambda x: relay.nn.dense(
        relay.nn.batch_flatten(x), const(randoms(10, 4, 378))
    ),
    "reshape-matmul": lambda x: relay.nn.matmul(
        relay.reshape(x, (2, 378)), const(randoms(11, 378, 4))
    ),
    "squeeze": lambda x: relay.squeeze(relay.nn.global_avg_pool2d(x), axis=[2, 3]),
    "dense-bias": lambda x: relay.add(
        relay.nn.dense(relay.mean(x, axis=(2, 3)), const(randoms(12, 5, 6))), const(randoms(13, 5))
    ),
    "shuffle": lambda x: relay.reshape(
        relay.transpose(relay.reshape(norm(x), (0, 2, 3, 7, 9)), (0, 2, 1, 3, 4)), (0, 6, 7, 9)
    ),
    "transpose-all": lambda x: relay.transpose(norm(x), (0, 3, -2, 1)),
    "transpose-of-ones": lambda x: relay.transpose(relay.nn.global_avg_pool2d(x), (0, 2, 3, 1)),
    "reverse": lambda x: relay.reverse(norm(x), -2),
    "concatenate-columns": lambda x: relay.concatenate([norm(x), x, x], axis=-1),
    "split-rows": lambda x: norm(
        relay.concatenate(list(reversed(list(relay.split(x, (2, 3), axis=2)))), axis=2)
    ),
    "slice-backwards": lambda x: relay.strided_slice(
        norm(x), [0, 0, 6, -1], [2, 6, 1, 2], strides=[1, 2, -2, -3]
    ),
    "slice-rank-5": lambda x: relay.strided_slice(
        relay.reshape(norm(x), (0, 2, 3, 7, 9)), [0, 1], [2, 3], strides=[1, 1], axes=[1, 2]
    ),
    "depth-to-space": lambda x: relay.nn.depth_to_space(conv(x, 12, 6, (1, 1)), 2),
    "depth-to-space-first": lambda x: relay.nn.depth_to_space(
        conv(x, 12, 6, (1, 1)), 2, mode="CDR"
    ),
    "space-to-depth": lambda x: relay.nn.space_to_depth(conv(x, 6, 6, (2, 2)), 2),
    "upsampling": lambda x: relay.nn.upsampling(norm(x), 2, 3),
    "nearest": lambda x: resize(x, (12, 12), "nearest_neighbor", "half_pixel", "ceil"),
    "nearest-corners": lambda x: resize(x, (4, 20), "nearest_neighbor", "align_corners"),
    "nearest-fewer": lambda x: resize(x, (5, 3), "nearest_neighbor", "asymmetric", "floor"),
    "linear": lambda x: resize(x, (14, 12), "linear", "half_pixel"),
    "linear-corners": lambda x: resize(x, (13, 5), "linear", "align_corners"),
    "linear-long": lambda x: resize(x, (7, 131), "linear", "asymmetric"),
    "dropout": lambda x: relay.nn.dropout(norm(x), rate=0.5),
}


@pytest.fixture(autouse=True)
def _machine_of_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What operators mean hangs on no machine."""
    monkeypatch.setattr("tvm_npu.door.partition.machine_layers", lambda machine: all_layers())


@pytest.fixture(scope="module")
def wanted() -> dict[str, np.ndarray[Any, Any]]:
    """Stock TVM's values of all cases; one build is much cheaper than one a case."""
    x = var("x", SHAPE)
    everything = module(relay.Tuple([case(x) for case in CASES.values()]))
    return dict(zip(CASES, stock(everything, [randoms(1, *SHAPE)], opt_level=0), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_operator_means_what_it_means_in_tvm(
    case: str, wanted: dict[str, np.ndarray[Any, Any]]
) -> None:
    found = split(module(CASES[case](var("x", SHAPE))))
    (got,) = float_region(found, [randoms(1, *SHAPE)])
    function = found.mod[found.regions[0].symbol]
    calls = DOOR.region(found.mod, found.regions[0].symbol).flow.calls
    expected = {kind for call in calls for kind in MAKES[call.name]}
    graph = import_region(function)
    assert {type(layer) for layer in (*graph.layers, *fuse(graph).layers)} <= {
        *expected, Conv2d,
    }, "door.layers.MAKES says which layers there may be"
    assert got.shape == wanted[case].shape
    np.testing.assert_allclose(got, wanted[case], rtol=1e-4, atol=1e-5)


def test_two_inputs_and_two_outputs() -> None:
    x, y = var("x", SHAPE), var("y", SHAPE)
    z = relay.add(x, y)
    mod = module(relay.Tuple([relay.nn.relu(z), relay.nn.global_avg_pool2d(z)]))
    values = [randoms(1, *SHAPE), randoms(2, *SHAPE)]
    for got, want in zip(float_region(split(mod), values), stock(mod, values), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_layers_carry_source_names_and_stable_tensor_names() -> None:
    function = split(module(conv(var("x", SHAPE), 4, 6, (3, 3)))).mod["tvmgen_default_npu_main_0"]
    first, second = import_region(function), import_region(function)
    assert first.shapes == second.shapes == {"in0": SHAPE[1:], "t0": (4, 5, 7)}
    assert isinstance(first.layers[0], Conv2d) and first.layers[0].source == ()
    named = function.with_attr("npu.sources", '["my conv"]')
    assert import_region(named).layers[0].source == ("my conv",)


def test_batch_norm_constants() -> None:
    found = split(module(norm(var("x", SHAPE))))
    (layer,) = import_region(found.mod[found.regions[0].symbol]).layers
    assert isinstance(layer, ScaleShift) and layer.scale.dtype == np.float32


def test_ceil_mode_padding_reaches_the_last_window() -> None:
    found = split(
        module(relay.nn.max_pool2d(var("x", (1, 1, 6, 7)), (3, 3), (2, 2), ceil_mode=True))
    )
    (layer,) = import_region(found.mod[found.regions[0].symbol]).layers
    assert isinstance(layer, Pool) and layer.padding == (0, 0, 1, 0)


def test_foreign_operator_is_named() -> None:
    mod = relay.transform.InferType()(module(relay.cos(var("x", SHAPE))))
    with pytest.raises(ImportRegionError, match="'odd' contains 'cos', which has no NPU layer"):
        import_region(mod["main"], "odd")
