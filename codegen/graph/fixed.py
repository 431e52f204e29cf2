"""The fixed-point graph: what `codegen.passes.quantize` makes and what a Program computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tvm_npu.codegen.graph.layer import FixedLayer
from tvm_npu.codegen.graph.scale import Scale
from tvm_npu.codegen.graph.tensors import Shape


@dataclass(frozen=True, eq=False)
class FixedGraph:
    """Layers on integers of ``element_bytes`` bytes, in execution order.

    ``scales`` says what the integers of each tensor mean. Every layer that computes ends in the
    same step, stated once in `codegen.fixed_point.requantize`.
    """

    layers: tuple[FixedLayer, ...]
    shapes: dict[str, Shape]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scales: dict[str, Scale]
    element_bytes: Literal[1, 2]
    name: str = "npu"

    @property
    def q_points(self) -> dict[str, int]:
        """The Q-points of the tensors whose scale is one."""
        return {tensor: one.q_point for tensor, one in self.scales.items() if one.is_q_point}

    @property
    def precision(self) -> Literal["int16", "int8"]:
        return "int16" if self.element_bytes == 2 else "int8"
