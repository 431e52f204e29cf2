"""Designs: machines with the planner, precision and batch that they are used with."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from tvm_npu.codegen.plan import first_planner_fault
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.errors import MachineError
from tvm_npu.sim.lazy import cached_property
from tvm_npu.sim.machine_file import load_machine, machine_from_dict
from tvm_npu.sim.machine_parts import Precision
from tvm_npu.sweep.formulas import check, evaluate
from tvm_npu.sweep.outcome import Outcome
from tvm_npu.sweep.spec import MOST_TRIED, Range, Scalar, SweepError, SweepSpec

TRIES = 1000
"""At most so many draws for a design that constraints allow."""
MOST_EXPRESSIONS = 1_000_000
"""Characters of all constraints, formulas and requirements: they are read in about a second."""


@dataclass(frozen=True)
class Design:
    """``changes`` are the keys that differ from the machine ``loaded_from`` a file or by its name,
    by dotted name. A machine that its kind refuses is known by ``fault`` only. ``batch`` frames are
    given to it together."""

    name: str
    machine: MachineDescription | None
    planner: str
    precision: Precision | None
    loaded_from: str
    changes: tuple[tuple[str, Scalar], ...] = ()
    fault: str | None = None
    batch: int = 1

    @property
    def precision_used(self) -> Precision | None:
        """The machine's own where none is chosen; None where there is no machine either."""
        if self.precision is None and self.machine is not None:
            return self.machine.default_precision
        return self.precision

    @property
    def use(self) -> str:
        """What the machine is used with, for people."""
        parts = [self.planner, self.precision or "", f"batch {self.batch}" * (self.batch > 1)]
        return " ".join(part for part in parts if part)


class DesignSpace:
    """All designs of a specification; raises SweepError for a base or a key that does not exist,
    an expression that cannot have a value, and a planner that does not plan one of the machines."""

    def __init__(self, spec: SweepSpec) -> None:
        self.spec = spec
        try:
            self.files = [(name, load_machine(name)) for name in spec.machine.files]
            base = spec.machine.base
            self.base = None if base is None else load_machine(base)
        except MachineError as error:
            raise SweepError(str(error)) from error
        machines = [machine for _, machine in self.files] + ([self.base] if self.base else [])
        fault = first_planner_fault(spec.planners, machines)
        if fault is not None:
            raise SweepError(f"planners: {fault}")
        self._values = {} if self.base is None else self.base.model_dump()
        for key in spec.machine.keys:
            _entry(self._values, key, spec.machine.base or "")
        self._check_expressions(machines)

    def _check_expressions(self, machines: Sequence[MachineDescription]) -> None:
        """Before any work. What one of the machines has may be named: expressions can ask which."""
        spec = self.spec
        formulas = {f"outcome {name!r}": one.formula for name, one in spec.outcome.items()}
        total = sum(map(len, (*spec.machine.constraints, *formulas.values(), *spec.search.require)))
        if total > MOST_EXPRESSIONS:
            raise SweepError(
                f"constraints, formulas and requirements have {total} characters; "
                f"{MOST_EXPRESSIONS} are possible"
            )
        keys = {key for machine in machines for key in _keys(machine.model_dump())}
        of_base = {*_keys(self._values)} or keys
        for text in spec.machine.constraints:
            check(text, of_base, "constraint")
        known = keys | {*Outcome().to_dict(), "batch", "element_bytes"}
        for what, text in formulas.items():
            check(text, known, what)
        for text in spec.search.require:
            check(text, known | {*spec.outcome}, "search.require")

    @cached_property
    def axes(self) -> dict[str, tuple[Scalar, ...]]:
        """Values of each key that is varied."""
        return {
            key: found.values() if isinstance(found, Range) else tuple(found)
            for key, found in self.spec.machine.keys.items()
        }

    @property
    def uses(self) -> tuple[tuple[str, Precision | None, int], ...]:
        """(planner, precision, batch); no precision: the machine's own."""
        precisions: tuple[Precision | None, ...] = (*self.spec.precisions,) or (None,)
        return tuple(product(self.spec.planners, precisions, self.spec.batches))

    @property
    def combinations(self) -> int:
        """Of values of keys, with those that constraints refuse."""
        return prod(len(values) for values in self.axes.values())

    def of_files(self) -> Iterator[Design]:
        for (file, machine), (planner, precision, batch) in product(self.files, self.uses):
            yield Design(machine.name, machine, planner, precision, file, batch=batch)

    def grid(self) -> Iterator[Design]:
        """Every combination of keys that the constraints allow."""
        if self.base is None:
            return
        if self.combinations > MOST_TRIED:
            raise SweepError(
                f"machine.keys: they have {self.combinations} combinations; {MOST_TRIED} are "
                "possible in a grid: give fewer values, or the search method random or nsga2"
            )
        for values in product(*self.axes.values()):
            changes = dict(zip(self.axes, values, strict=True))
            if self.allows(changes):
                yield from (self.design(changes, *use) for use in self.uses)

    def random(self, count: int, seed: int) -> Iterator[Design]:
        """``count`` different combinations of keys (fewer where there are not so many)."""
        draw = random.Random(seed)
        seen: set[tuple[Scalar, ...]] = set()
        for _ in range(min(TRIES * count, MOST_TRIED)):
            if len(seen) == min(count, self.combinations):
                return
            values = tuple(draw.choice(options) for options in self.axes.values())
            if values in seen:
                continue
            changes = dict(zip(self.axes, values, strict=True))
            if self.allows(changes):
                seen.add(values)
                yield from (self.design(changes, *use) for use in self.uses)

    def allows(self, changes: Mapping[str, Scalar]) -> bool:
        names = self._changed(changes)
        return all(
            evaluate(text, names, "constraint") for text in self.spec.machine.constraints
        )

    def design(
        self, changes: Mapping[str, Scalar], planner: str, precision: Precision | None, batch: int
    ) -> Design:
        """The base machine with ``changes``."""
        base = self.spec.machine.base
        assert self.base is not None and base is not None
        text = ",".join(f"{key}={value}" for key, value in changes.items())
        name = f"{self.base.name}[{text}]" if text else self.base.name
        values = {**self._changed(changes), "name": self.base.name}
        key = tuple(changes.items())
        try:
            machine = machine_from_dict(values, name)
        except MachineError as error:
            return Design(name, None, planner, precision, base, key, str(error), batch)
        return Design(name, machine, planner, precision, base, key, batch=batch)

    def _changed(self, changes: Mapping[str, Scalar]) -> dict[str, Any]:
        values = _copy(self._values)
        for key, value in changes.items():
            inner, last = _entry(values, key, "")
            inner[last] = value
        return values


def _copy(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _copy(value) for key, value in values.items()}
    return values


def _entry(values: dict[str, Any], key: str, machine: str) -> tuple[dict[str, Any], str]:
    """The table that holds a dotted key, and its last part."""
    inner = values
    *parts, last = key.split(".")
    for part in parts:
        inner = inner.get(part, {}) if isinstance(inner, dict) else {}
    if not isinstance(inner, dict) or last not in inner or isinstance(inner[last], dict):
        known = ", ".join(sorted(_keys(values)))
        raise SweepError(f"machine.keys: {machine} has no key {key!r}; it has {known}")
    return inner, last


def _keys(values: Mapping[str, Any], front: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _keys(value, f"{front}{key}.")
        else:
            yield front + key
