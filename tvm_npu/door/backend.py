"""What the rules ask the code generator of a machine: which layers it takes, what they need."""

from __future__ import annotations

from collections.abc import Mapping

from tvm_npu.codegen import fixed as f
from tvm_npu.codegen import graph as g
from tvm_npu.codegen.least import LeastNeeds, least_needs
from tvm_npu.sim.description import MachineDescription

__all__ = ["LeastNeeds", "emitted_layers", "every_layer", "fixed_layer", "least_needs"]

_FIXED: Mapping[type[g.Layer], type[f.FixedLayer]] = {
    g.Conv2d: f.FixedConv,
    g.Dense: f.FixedConv,
    g.Affine: f.FixedConv,
    g.Pool: f.FixedPool,
    g.Elementwise: f.FixedElementwise,
    g.Pad: f.FixedPad,
    g.Concat: f.FixedConcat,
    g.Reshape: f.FixedReshape,
    g.ChannelSlice: f.FixedChannelSlice,
}
_LAYOUT_ONLY = frozenset({f.FixedConcat, f.FixedReshape, f.FixedChannelSlice})
"""No code is emitted for these: `codegen.passes.storage` places tensors so that none is needed."""


def fixed_layer(layer: g.Layer) -> type[f.FixedLayer]:
    """The layer that a float layer becomes, quantized."""
    return _FIXED[type(layer)]


def every_layer() -> frozenset[type[f.FixedLayer]]:
    """All that operators can become."""
    return frozenset(_FIXED.values())


def emitted_layers(machine: MachineDescription) -> frozenset[type[f.FixedLayer]]:
    """Layers that a program for ``machine`` may have."""
    return every_layer() | _LAYOUT_ONLY
