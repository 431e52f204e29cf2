"""What only Relay's stages have: layouts of blocked channels, and Relay modules that cannot be cut.

What holds through every door is in `tests/doors/test_stages.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

from tests.relay.relay_cases import const, module, randoms, var  # noqa: E402
from tvm_npu.errors import CutError  # noqa: E402
from tvm_npu.pipelines.cut import CutModel  # noqa: E402
from tvm_npu.relay.door import DOOR  # noqa: E402

pytestmark = pytest.mark.relay

HOST = DOOR.cpu_target("")


def cut_model(mod: tvm.IRModule) -> CutModel:
    return DOOR.cut(mod, None, target=HOST, name="model")


def conv(data: Any, seed: int, filters: int, size: int = 3, strides: int = 1) -> Any:
    channels = relay.frontend.common.infer_shape(data)[1]
    weight = const(randoms(seed, filters, channels, size, size) * 0.2)
    pad = size // 2
    return relay.nn.conv2d(
        data, weight, padding=(pad, pad), strides=(strides, strides), channels=filters,
        kernel_size=(size, size),
    )  # fmt: skip


def test_the_common_target_has_the_narrowest_vectors() -> None:
    wide, narrow = DOOR.cpu_target("skylake-avx512"), DOOR.cpu_target("nehalem")
    assert DOOR.common_target([wide, narrow, HOST]) == narrow == "llvm -mcpu=nehalem"


def test_what_cannot_be_cut() -> None:
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
        cut_model(module(relay.nn.relu(conv(halves[0], 2, 4))))
