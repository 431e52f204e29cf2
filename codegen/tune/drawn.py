"""Spaces whose plans are drawn at random and made to fit: what those of convolutions share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from tvm_npu.codegen.plan.faults import PlanFault
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tune.columns import problem_columns
from tvm_npu.codegen.tune.errors import EmptySpaceError
from tvm_npu.codegen.tune.space import Columns, Features
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.lazy import cached_property

M = TypeVar("M", bound=MachineDescription)
P = TypeVar("P")

ATTEMPTS = 2000
"""Draws without a plan that fits before a space counts as empty."""


@dataclass(frozen=True)
class DrawnSpace(ABC, Generic[M, P]):
    """`space.Space` of one convolution or fully connected layer. A kind says how plans are written,
    drawn, changed and fitted; widths of the layer are those in the machine's memories."""

    layer: ConvProblem
    machine: M

    @property
    @abstractmethod
    def kind(self) -> str: ...

    @property
    @abstractmethod
    def feature_names(self) -> tuple[str, ...]: ...

    @abstractmethod
    def features(self, plans: Sequence[P]) -> Features: ...

    @abstractmethod
    def encode(self, plan: P) -> Columns: ...

    @abstractmethod
    def _decoded(self, columns: Mapping[str, Any]) -> P:
        """ValueError for columns of which no plan can be made."""

    @abstractmethod
    def _fault(self, plan: P) -> PlanFault | None: ...

    @abstractmethod
    def _drawn(self, generator: np.random.Generator) -> P:
        """All choices at random; the plan need not fit."""

    @abstractmethod
    def _changed(self, plan: P, generator: np.random.Generator) -> P:
        """One choice of ``plan`` anew; the plan need not fit."""

    @abstractmethod
    def _fitted(self, plan: P, generator: np.random.Generator) -> P | None:
        """``plan`` made sound; None where that fails."""

    @cached_property
    def problem(self) -> Columns:
        return problem_columns(self.layer)

    def decode(self, columns: Mapping[str, Any]) -> P:
        plan = self._decoded(columns)
        fault = self._fault(plan)
        if fault is not None:
            raise ValueError(str(fault))
        return plan

    def sample(self, generator: np.random.Generator) -> P:
        for _ in range(ATTEMPTS):
            plan = self._fitted(self._drawn(generator), generator)
            if plan is not None:
                return plan
        raise EmptySpaceError(
            f"{ATTEMPTS} random plans of a layer of {self.layer.filters} filters and "
            f"{self.layer.channels} channels on machine {self.machine.name!r}: none fits"
        )

    def neighbour(self, plan: P, generator: np.random.Generator) -> P:
        """In a space of one plan, that plan."""
        for _ in range(ATTEMPTS):
            other = self._fitted(self._changed(plan, generator), generator)
            if other is not None and other != plan:
                return other
        return self.sample(generator)
