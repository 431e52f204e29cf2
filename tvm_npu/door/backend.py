"""What the rules ask about a machine's code generator: which layers it takes, what they need."""

from __future__ import annotations

from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.graph import FixedLayer, Layer
from tvm_npu.codegen.least import LeastNeeds, least_needs
from tvm_npu.codegen.ops.registry import emitted_layers
from tvm_npu.sim.description import MachineDescription

__all__ = [
    "LayerTypes", "LeastNeeds", "least_needs", "machine_layers", "machine_makes", "needed_layers",
]  # fmt: skip

LayerTypes = frozenset[type[FixedLayer]]


def needed_layers(layer: type[Layer]) -> LayerTypes:
    """What a machine must have code for to take float layers of a type."""
    return emitted_layers(layer)


def machine_makes(machine: MachineDescription) -> frozenset[type]:
    """What `fuse` may make for ``machine``."""
    return backend_of(machine).made(machine)


def machine_layers(machine: MachineDescription) -> LayerTypes:
    """What ``machine`` has code for, and room."""
    return backend_of(machine).layer_types & machine_makes(machine)
