"""What tuners, cost model and log have to know of the plans of a layer: the protocol `Space`.

A space belongs to one layer on one machine. Everything in it is deterministic: what is drawn comes
from the generator that is handed in. The backend of a kind of machines makes them
(`Backend.space`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.backends import backend, backend_names, backend_of
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.description import MachineDescription

Scalar = str | int | float | bool | None
Columns = dict[str, Scalar]
"""Flat: what a line of a log holds."""
Features = NDArray[np.float32]

P = TypeVar("P")


class Space(Protocol[P]):
    """All plans of one layer on one machine. Plans are immutable and hashable."""

    @property
    def kind(self) -> str:
        """What sort of plans these are; a log keeps those of several apart by it."""

    @property
    def machine(self) -> MachineDescription: ...

    @property
    def problem(self) -> Columns:
        """The layer, in full: layers with equal columns have equal plans."""

    @property
    def feature_names(self) -> tuple[str, ...]: ...

    def sample(self, generator: np.random.Generator) -> P:
        """A random sound plan; raises EmptySpaceError when none is found."""

    def neighbour(self, plan: P, generator: np.random.Generator) -> P:
        """A sound plan that differs from ``plan`` in one choice and what follows from it."""

    def features(self, plans: Sequence[P]) -> Features:
        """[len(plans), len(feature_names)]: what a cost model sees of plans."""

    def encode(self, plan: P) -> Columns:
        """Every choice of ``plan``."""

    def decode(self, columns: Mapping[str, Any]) -> P:
        """The plan of `encode`; ValueError, with what is wrong, for columns that are no plan of
        this space."""


def machine_fingerprint(machine: MachineDescription) -> str:
    """16 hexadecimal digits of everything that a run on ``machine`` depends on: all but its name
    and its description. The order in which a description declares its keys does not matter."""
    values = machine.model_dump(mode="json", exclude={"name", "description"})
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def space_of(problem: ConvProblem, machine: MachineDescription) -> Space[Any]:
    """Raises PlanningError for a machine of a kind without a space."""
    return backend_of(machine).space(problem, machine)


def check_tunable(machine: MachineDescription) -> None:
    """Raises PlanningError where `space_of` does for every layer."""
    if not backend_of(machine).is_tunable:
        raise untunable(machine)


def untunable(machine: MachineDescription) -> PlanningError:
    """What to say of a machine whose kind has no space."""
    isas = [isa for isa in backend_names() if backend(isa).is_tunable]
    return PlanningError(
        f"plans of machine {machine.name!r} of isa {machine.isa!r} cannot be tuned; those of "
        f"machines of isa {', '.join(map(repr, isas))} can"
    )
