"""Arguments of wrong types: the runtime's own errors, which say what was expected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.runtime.networks import compiled, machine
from tvm_npu.codegen.errors import ProgramError
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.tune.errors import TuningLogError
from tvm_npu.codegen.tune.log import LogWriter, read_log
from tvm_npu.pipelines.errors import PlatformError
from tvm_npu.pipelines.platform_file import load_platform
from tvm_npu.runtime.errors import RunError
from tvm_npu.runtime.packed import limited
from tvm_npu.runtime.session import Session
from tvm_npu.sim.errors import MachineError
from tvm_npu.sim.limits import LimitError, Limits
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.traps import Trap
from tvm_npu.sweep.spec import SweepError, read_spec

SMALL = machine()
X = np.zeros((1, 3, 12, 12), np.float32)
FIXED = X.astype(np.int16)


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(compiled(SMALL)[0])


@pytest.mark.parametrize("program", [None, "x.npu", 3, [b"x"], {}])
def test_programs(program: Any) -> None:
    with pytest.raises(RunError, match=f"is a {type(program).__name__}; expected a Program or the"):
        Session(program)


@pytest.mark.parametrize("data", [None, "x.npu", 10**15, [1, 2]])
def test_bytes_of_programs(data: Any) -> None:
    with pytest.raises(ProgramError, match=f"is a {type(data).__name__}; expected its bytes"):
        Program.from_bytes(data)


@pytest.mark.parametrize("path", [None, 0, b"x.npu", ["x"]])
def test_paths_of_programs(path: Any) -> None:
    with pytest.raises(ProgramError, match=f"path is a {type(path).__name__}"):
        Session.from_file(path)


@pytest.mark.parametrize("path", ["a\0b", "\ud800", Path("a\0b"), Path("\ud800")])
def test_paths_that_no_file_has(path: Any) -> None:
    for read, error, what in (
        (Session.from_file, ProgramError, "a program file's path"),
        (load_machine, MachineError, "a machine's name or path"),
        (load_platform, PlatformError, "a platform's name or path"),
        (read_spec, SweepError, "a sweep's path"),
        (read_log, TuningLogError, "a tuning log's path"),
        (LogWriter, TuningLogError, "a tuning log's path"),
    ):
        with pytest.raises(error, match=f"^{what} is '.*'; no path has NUL characters"):
            read(path)
        for wrong in (None, 5, b"x"):
            with pytest.raises(error, match=f"^{what} is a {type(wrong).__name__}; expected a"):
                read(wrong)


def test_bytes_of_any_kind() -> None:
    data = compiled(SMALL)[0].to_bytes()
    for given in (data, bytearray(data), memoryview(data)):
        assert Session(given).program.to_bytes() == data


@pytest.mark.parametrize("limits", [None, "work=1g", 5, {"work": 5}])
def test_limits(limits: Any) -> None:
    message = f"limits are a {type(limits).__name__}; expected Limits, such as"
    with pytest.raises(LimitError, match=message):
        Session(compiled(SMALL)[0], limits=limits)
    with pytest.raises(LimitError, match=message), limited(limits):
        pass


@pytest.mark.parametrize("budget", ["9", 1.5, True, 0, [1]])
def test_budgets(budget: Any) -> None:
    with pytest.raises(LimitError, match="limit instructions is .*; a whole number from 1 to"):
        Session(compiled(SMALL)[0], budget=budget)


def test_the_smaller_number_of_instructions_holds() -> None:
    program = compiled(SMALL)[0]
    for limit, budget in ((20, 10), (10, 20), (None, 10)):
        session = Session(program, budget=budget, limits=Limits(instructions=limit))
        with pytest.raises(Trap, match="still running after 10 instructions"):
            session.run([X, X])


def test_numbers_of_limits() -> None:
    assert Limits(instructions=None).instructions is None
    for work in (None, True, 1.0, "1"):
        with pytest.raises(LimitError, match="limit work is"):
            Limits(work=work)  # type: ignore[arg-type]
    for text in (None, 5, b"work=1g"):
        with pytest.raises(LimitError, match="expected a text like work=1g"):
            Limits.parse(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "inputs", [None, 3, "xy", b"xy", {"x": X, "y": X}, {1, 2}, iter([X, X]), np.float32(1)]
)
def test_inputs(inputs: Any, session: Session) -> None:
    for run in (session.run, session.run_fixed):
        with pytest.raises(RunError, match=r"are a \w+; expected a list of 2 arrays, one an input"):
            run(inputs)


@pytest.mark.parametrize("wrong", [3.0, np.int16(3), X[0, 0], X[0, 0, 0], np.zeros(())])
def test_inputs_without_a_batch_axis(wrong: Any, session: Session) -> None:
    with pytest.raises(RunError, match=r"input 'x' has shape \(.*takes \(batch, 3, 12, 12\)"):
        session.run([wrong, X])
    with pytest.raises(RunError, match=r"input 'x' has shape \(.*takes \(batch, 3, 12, 12\)"):
        session.run_fixed([np.asarray(wrong, np.int16), FIXED])


@pytest.mark.parametrize("wrong", [None, "text", object(), X.astype(object), X.astype(complex)])
def test_inputs_that_are_no_numbers(wrong: Any, session: Session) -> None:
    with pytest.raises(RunError, match="input 'x' of .* has type .*; it takes real numbers"):
        session.run([wrong, X])
    with pytest.raises(RunError, match="input 'x' has type .*, the program takes int16"):
        session.run_fixed([wrong, FIXED])


def test_programs_with_inputs_of_no_extents(session: Session) -> None:
    program = compiled(SMALL)[0]
    slot = replace(program.inputs[0], shape=())
    made = replace(program, inputs=(slot, program.inputs[1]))
    for use in (Program.to_bytes, Session):
        with pytest.raises(ProgramError, match=r"header: inputs\.0\.shape: .* at least 1 item"):
            use(made)
    for run, value in ((session.run, np.float32(3)), (session.run_fixed, np.int16(3))):
        with pytest.raises(RunError, match=r"input 'x' has shape \(\), the program takes \(bat"):
            run([value, FIXED])


def test_rows_of_different_lengths(session: Session) -> None:
    for run in (session.run, session.run_fixed):
        with pytest.raises(RunError, match="input 'x' .* rows of different lengths are no array"):
            run([[[1, 2], [3]], FIXED])  # type: ignore[list-item]


@pytest.mark.parametrize("wrong", ["log", 5, [1]])
def test_sinks_and_watches(wrong: Any, session: Session) -> None:
    with pytest.raises(RunError, match=f"events is a {type(wrong).__name__}; it needs record"):
        session.run([X, X], events=wrong)
    with pytest.raises(RunError, match=f"watch is a {type(wrong).__name__}; it needs begins and"):
        session.run_fixed([FIXED, FIXED], watch=wrong)


def test_names_of_tensors(session: Session) -> None:
    for name in (None, 3, ["x"]):
        with pytest.raises(RunError, match="has no tensor"):
            session.read_intermediate(name)  # type: ignore[arg-type]


def hand_made() -> dict[str, tuple[Program, str]]:
    """Programs that no file could hold, by what is wrong, with what is said of it."""
    program = compiled(SMALL)[0]
    (first, *others), slots = program.outputs, program.inputs
    planes = {gap: replace(first, planes=1, pitch=1 << gap) for gap in (10, 34)}

    def with_output(slot: Any) -> Program:
        return replace(program, outputs=(slot, *others))

    anything: Any = None
    return {
        "pixels far apart": (with_output(planes[34]), "end of tensor 'z' is"),
        "pixels in other memory": (with_output(planes[10]), "end of tensor 'z' is"),
        "offset": (with_output(replace(first, offset=1 << 20)), "end of tensor 'z' is"),
        "negative offset": (with_output(replace(first, offset=-64)), "outputs.0.offset: Input"),
        "slot": (with_output(anything), "outputs.0: Input"),
        "slot of parts": (with_output(SimpleNamespace(name="z")), "no file holds parts of such"),
        "inputs": (replace(program, inputs=anything), "inputs: Input"),
        "scale": (
            replace(program, inputs=(replace(slots[0], scale=anything), slots[1])), "no file holds",
        ),
        "segments": (replace(program, segments={}), "set of segments is"),
        "code": (replace(program, code=anything, images=program.images), "code is <class 'None"),
        "wide code": (replace(program, code=program.code.astype(np.int64)), r"code is int64 \("),
        "debug": (replace(program, debug=program.debug[:9]), "length of the debug map is 9"),
        "relocations": (replace(program, relocations=np.zeros(3)), r"relocations is float64 \(3,"),
        "constants": (replace(program, constants="x"), "constants is <class 'str'>"),  # type: ignore[arg-type]
        "batch": (replace(program, batch=0), "batch: Input should be greater"),
        "images": (replace(program, images=program.images * 2), "code image 1 is"),
        "precision": (replace(program, precision="float"), "precision: Input"),  # type: ignore[arg-type]
        "machine": (replace(program, machine=anything), "machine: Input"),
    }  # fmt: skip


@pytest.mark.parametrize("wrong", list(hand_made()))
def test_programs_that_no_file_could_hold(wrong: str) -> None:
    """A session believes neither places in memory nor types of a program that is made by hand."""
    program, said = hand_made()[wrong]
    for use in (Session, Program.to_bytes):
        with pytest.raises(ProgramError, match=said):
            use(program)
