"""Tile machines through the Relay door: target tags, regions that run on their simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)
import tvm  # noqa: E402
from tvm import relay  # noqa: E402
from tvm.contrib import graph_executor  # noqa: E402

from tests.relay.relay_cases import const, module, randoms, small_cnn, split, stock, var  # noqa: E402
from tvm_npu import target as npu_target  # noqa: E402
from tvm_npu.codegen.fixed_point import dequantize_tensor, quantize_tensor  # noqa: E402
from tvm_npu.codegen.program.format import Program  # noqa: E402
from tvm_npu.codegen.reference import run_fixed  # noqa: E402
from tvm_npu.relay import (  # noqa: E402
    explain,
    partition_for_npu,
    region_fixed_graphs,
    region_programs,
)
from tvm_npu.runtime.packed import last_session  # noqa: E402

pytestmark = pytest.mark.relay

X = randoms(1, 1, 3, 12, 12)


def run(library: Any, x: Any) -> Any:
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.set_input("x", x)
    executor.run()
    return executor.get_output(0).numpy()


@pytest.mark.parametrize(
    ("machine", "precision"), [("setup-a", None), ("setup-a", "int16"), ("setup-d", "int8")]
)
def test_a_model_runs_on_a_tag(machine: str, precision: Any) -> None:
    mod = partition_for_npu(
        small_cnn(), target=f"npu/{machine}", calibration=X, precision=precision
    )
    assert explain(mod).machine == machine
    assert explain(mod).precision == (precision or "int8")
    library = relay.build(mod, target=f"npu/{machine}")
    (fixed,) = region_fixed_graphs(mod).values()
    (content,) = region_programs(mod).values()
    program = Program.from_bytes(content)
    assert program.inputs[0].stored_bytes == 4 and program.machine["isa"] == "tiles"
    inputs = {
        name: quantize_tensor(X, fixed.q_points[name], fixed.element_bytes) for name in fixed.inputs
    }
    wanted = run_fixed(fixed, inputs)[fixed.outputs[0]]
    logits = dequantize_tensor(wanted, fixed.q_points[fixed.outputs[0]])
    # The softmax behind the region runs on the CPU: the same code there for the same numbers.
    (expected,) = stock(module(relay.nn.softmax(var("x", (1, 5)))), [logits])
    np.testing.assert_array_equal(run(library, X), expected)
    measured = last_session().statistics
    assert measured.machine == machine and measured.cycles > 0


def test_close_to_stock_tvm() -> None:
    mod = small_cnn()
    (want,) = stock(mod, [X], opt_level=1)
    made = partition_for_npu(mod, target="npu/setup-b", calibration=X, precision="int16")
    (got,) = stock(made, [X], "npu/setup-b")
    assert np.abs(got - want).max() < 1e-3


def test_a_described_machine_as_target(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(
        '{"bandwidth": 1.6, "frequency": 1.2, "mem_size": [8, 8, 8], // small\n'
        '"pe_len": [4, 4], "pe_mapping": [["IC"], ["OC"]]}'
    )
    target = npu_target(path)
    mod = partition_for_npu(small_cnn(), target=target, calibration=X)
    run(relay.build(mod, target=target), X)
    assert last_session().statistics.machine == "mine"


@pytest.mark.parametrize(
    ("size", "memories", "value", "limit"),
    [
        (9, "input_bytes = 128\nweight_bytes = 128", "window 9x9 = 336 bytes", "128 bytes of inp"),
        (9, "weight_bytes = 128", "kernel 9x9 = 328 bytes", "128 bytes of weight memory"),
    ],
)
def test_rules_ask_tile_machines(
    tmp_path: Path, size: int, memories: str, value: str, limit: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'extends = "setup-a"\nname = "mine"\n[memories]\n{memories}\n')
    weight = const(randoms(0, 4, 4, size, size))
    call = relay.nn.conv2d(var("x", (1, 4, 16, 16)), weight, channels=4, kernel_size=(size, size))
    (refusal,) = split(module(call), str(path), element_bytes=1).refusals
    assert refusal.value == value and limit in refusal.limit
