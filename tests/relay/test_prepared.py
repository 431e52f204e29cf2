"""Programs made ahead of a build, and what stands for their regions meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_npu.models.data import load_digits, load_digits_calibration, load_digits_lenet

tvm = pytest.importorskip("tvm", reason="the relay extra is not installed")
pytestmark = pytest.mark.relay


def test_stand_ins_have_the_type_and_the_program_of_their_regions_and_no_layers() -> None:
    from tvm import relay
    from tvm.contrib.graph_executor import GraphModule

    from tvm_npu.relay import from_onnx, operands, partition_for_npu, prepared
    from tvm_npu.relay.door import DOOR

    mod, params = from_onnx(load_digits_lenet())
    mod = partition_for_npu(mod, params, calibration=load_digits_calibration()[:2])
    (symbol,) = DOOR.regions(mod)
    regions = {symbol: DOOR.region(mod, symbol)}
    with prepared.prepared(mod, regions) as light:
        light = relay.transform.InferType()(light)
        assert light[symbol].checked_type == mod[symbol].checked_type
        found = prepared.program_of(light[symbol])
        assert found is not None and found.path.read_bytes() == regions[symbol].program()
        names = {operands.op_name(call) for call in operands.post_order(light[symbol].body)}
        assert names == {"zeros"}
    assert prepared.program_of(mod[symbol]) is None and not prepared._programs

    images, _ = load_digits()
    executor = GraphModule(relay.build(mod, target="llvm")["default"](tvm.cpu()))
    executor.run(image=images[:1])
    (ours,) = DOOR.build(mod, {}, "llvm", 3).run({"image": images[:1]})
    assert np.array_equal(executor.get_output(0).numpy(), ours)
