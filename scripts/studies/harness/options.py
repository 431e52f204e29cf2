"""Options of several studies, each declared once."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from studies.harness.errors import StudyError
from tvm_npu.codegen.plan import first_planner_fault, planner_names
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.errors import MachineError
from tvm_npu.sim.kinds import machine_kind
from tvm_npu.sim.machine_file import load_machine, machine_names, of_description


class Distinct(argparse.Action):
    """Several values, each once, in the order in which they were given."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: Any, option: object = None
    ) -> None:
        kept: list[Any] = []
        for value in values:
            if value not in kept:
                kept.append(value)
        setattr(namespace, self.dest, kept)


def known(what: str, values: Sequence[str]) -> Callable[[str], str]:
    """A type for argparse: one of ``values``, which an error lists."""

    def check(text: str) -> str:
        if text not in values:
            listed = ", ".join(values)
            raise argparse.ArgumentTypeError(f"unknown {what} {text!r}; known: {listed}")
        return text

    return check


def machine_of(load: Callable[[str], Any]) -> Callable[[str], Any]:
    """A type for argparse: a machine's name or file, as ``load`` reads it."""

    def read(text: str) -> Any:
        try:
            return load(text)
        except MachineError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def add_several(
    parser: argparse.ArgumentParser,
    option: str,
    what: str,
    values: Sequence[str],
    default: Sequence[str] | None = None,
    *,
    nargs: str = "+",
    note: str = "",
) -> None:
    """Names out of ``values``; by default all, or those of ``default``. ``note``, if any, stands in
    front of them."""
    by_default = "all" if default is None else " ".join(default) or "none"
    listed = "" if default is not None and tuple(default) == tuple(values) else (
        f"of: {', '.join(values)} "
    )  # fmt: skip
    parser.add_argument(
        option, nargs=nargs, type=known(what, values), action=Distinct, metavar="NAME",
        default=list(values if default is None else default),
        help=f"{note}{listed}(default: {by_default})",
    )  # fmt: skip


def add_models(parser: argparse.ArgumentParser, default: Sequence[str], nargs: str = "+") -> None:
    """``--models``: networks of `tvm_npu.models`."""
    from tvm_npu.models import names

    add_several(parser, "--models", "model", names(), default, nargs=nargs)


def add_machines(
    parser: argparse.ArgumentParser,
    default: Sequence[str],
    option: str = "--machines",
    isa: str | None = None,
) -> None:
    """Machines by name or file, of any kind or of that of ``isa``."""
    load = partial(_machine, isa)
    parser.add_argument(
        option, nargs="+", type=machine_of(load), action=Distinct, metavar="NAME|FILE",
        dest="machines", default=[load(name) for name in default],
        help=f"machine files, or of: {', '.join(machine_names(isa))} "
        f"(default: {' '.join(default)})",
    )  # fmt: skip


def _machine(isa: str | None, name: str) -> MachineDescription:
    machine = load_machine(name)
    return machine if isa is None else of_description(machine_kind(isa).description, machine)


def add_planners(parser: argparse.ArgumentParser, default: Sequence[str] | None = None) -> None:
    """``--planners``."""
    add_several(parser, "--planners", "planner", planner_names(), default)


def add_number(
    parser: argparse.ArgumentParser,
    option: str,
    default: int,
    text: str,
    kind: Callable[[str], int],
) -> None:
    parser.add_argument(
        option, type=kind, metavar="N", default=default, help=f"{text} (default: {default})"
    )


def check_planners(planners: Sequence[str], machines: Sequence[Any]) -> None:
    """Raises StudyError when one of ``planners`` does not plan one of ``machines``."""
    fault = first_planner_fault(planners, machines)
    if fault is not None:
        raise StudyError(fault)


def check_distinct_names(machines: Sequence[Any]) -> None:
    """Raises StudyError when two different machines have one name."""
    seen: set[str] = set()
    for machine in machines:
        if machine.name in seen:
            raise StudyError(
                f"two different machines are called {machine.name!r}; rows would be mixed up"
            )
        seen.add(machine.name)
