"""Two pointwise convolutions whose results are added, as one question: `SumProblem`.

Its plan is a `ConvPlan` of `SumProblem.whole`, as if the channels of the second came behind those
of the first, in tiles that have some of one alone. When those of the first are through, its OUT
tile comes to its end in MB2 and goes over the ring of the TLE to MB0, behind the IN tiles, where it
stays until the second adds it, as any residual, behind its own channels. Weights lie in DRAM as
those of the whole; biases of the second lie on chip behind those of the first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_npu.codegen.plan.problem import ConvProblem


@dataclass(frozen=True)
class SumProblem:
    """``second`` adds what ``first`` makes. As questions by themselves they have no residual."""

    first: ConvProblem
    second: ConvProblem

    @property
    def element_bytes(self) -> int:
        return self.second.element_bytes

    @property
    def whole(self) -> ConvProblem:
        """With IN tiles as the second one's, which are no smaller than the first one's."""
        return replace(self.second, channels=self.first.channels + self.second.channels)
