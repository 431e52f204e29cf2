"""Networks with leaky ReLUs and a passthrough: all of them on the NPU, bit for bit."""

from __future__ import annotations

import pytest

from studies.shared.networks import prepare
from studies.shared.simulation import measure
from tvm_npu.codegen.plan import planner
from tvm_npu.sim.nmp.machine import load_nmp_machine

pytestmark = pytest.mark.relay


@pytest.mark.parametrize(
    ("name", "input_size", "layers", "cpu_operators"),
    [
        # A leaky ReLU is a slope of the convolution in front and no layer of its own.
        ("flownet_s", 48, 10, 0),
        ("yolov2", 32, 34, 0),
        ("alexnet", 67, 12, 0),
        ("darknet53", 32, 75, 0),
    ],
)
def test_network_runs_on_the_npu(
    name: str, input_size: int, layers: int, cpu_operators: int
) -> None:
    machine = load_nmp_machine("nmp-4x8")
    network = prepare(name, machine, "int16", input_size=input_size, width=0.125)
    assert network.npu_mac_share == 1.0
    assert (network.layers, network.cpu_operators) == (layers, cpu_operators)
    assert measure(network, machine, planner("exact")).cycles > 0
