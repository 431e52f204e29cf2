"""Machine code made ahead, and times without it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.runtime.networks import network
from tvm_npu.cli import main
from tvm_npu.codegen.backends import backend_names
from tvm_npu.codegen.compile import CompileOptions, fixed_graph
from tvm_npu.codegen.fast import kernels
from tvm_npu.codegen.fast.graphs import FastFixed, FastFloat
from tvm_npu.codegen.fixed_point import quantize_tensor
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.door import models
from tvm_npu.sim import making_code
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.machine_parts import Precision
from tvm_npu.sim.making_code import Stopwatch, machine_code_seconds
from tvm_npu.warmup import warm_up


def test_what_is_warm_makes_no_code() -> None:
    machine = load_machine("setup-a")
    warm_up(machine, "naive")
    before = machine_code_seconds()
    warm_up(machine, "naive")
    assert machine_code_seconds() == before


@pytest.mark.parametrize("precision", ["int16", "int8"])
def test_convolutions_of_accuracies_are_warm(
    precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For images, sums and residuals of every type, also where filters have one channel."""
    seen: set[tuple[str, ...]] = set()
    for name in ("fixed_conv", "float_conv"):
        compiled = getattr(kernels, name)

        def counted(image: Any, *rest: Any, compiled: Any = compiled, name: str = name) -> None:
            arrays = [one for one in (image, *rest) if type(one) is np.ndarray]
            seen.add((name, *(one.dtype.name for one in arrays)))
            compiled(image, *rest)

        monkeypatch.setattr(kernels, name, counted)
    warm_up(load_machine("nmp-4x8"), "naive", precision)
    warm = set(seen)
    assert {name for name, *_ in warm} == {"fixed_conv", "float_conv"}
    graph, samples = network()
    given = {"x": samples, "y": samples[::-1]}
    options = CompileOptions(precision)
    fixed = fixed_graph(graph, calibrate(graph, [given]), load_machine("nmp-4x8"), options)
    FastFloat(graph).run(given)
    FastFixed(fixed).run({
        name: quantize_tensor(values, fixed.q_points[name], fixed.element_bytes)
        for name, values in given.items()
    })  # fmt: skip
    assert seen == warm
    sums = {found[2] for found in warm if found[0] == "fixed_conv"}
    assert sums == ({"float64"} if precision == "int16" else {"float32", "float64"})


def test_a_stopwatch_leaves_machine_code_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    clock = SimpleNamespace(perf_counter=lambda: now, process_time=time.process_time)
    monkeypatch.setattr(making_code, "time", clock)
    watch = Stopwatch()
    before = machine_code_seconds()
    with watch.part("work"):
        now += 1.0
        with making_code.making_code(), making_code.making_code():
            now += 5.0
    assert machine_code_seconds() - before == pytest.approx(5.0)
    assert (watch.machine_code_s, watch.seconds["work"]) == pytest.approx((5.0, 1.0))
    with watch.part("nothing"):
        pass
    with watch.part("work"):
        now += 2.0
    assert watch.seconds == pytest.approx({"work": 3.0, "nothing": 0.0})
    assert watch.machine_code_s == pytest.approx(5.0)


def test_the_command_warms_one_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warmup", "setup-a", "--planner", "naive"]) == 0
    name, seconds = capsys.readouterr().out.strip().split(": ")
    assert name == "setup-a" and float(seconds.removesuffix(" s")) >= 0.0
    assert main(["warmup", "no-such-machine"]) == 1
    assert "no-such-machine" in capsys.readouterr().err
    assert main(["warmup", "snowflake-1cc", "setup-a", "--planner", "snowflake"]) == 1
    told = capsys.readouterr()
    assert not told.out and "'snowflake' does not plan machine 'setup-a'" in told.err
    assert main(["warmup", "setup-a", "--planner", "naive", "--limits", "work=1"]) == 1
    assert "more than 1 products, elements and bytes" in capsys.readouterr().err


def test_every_kind_with_code_has_a_machine_to_warm() -> None:
    from tvm_npu.cli.warmup_command import first_of_each_kind

    kinds = [load_machine(name).isa for name in first_of_each_kind()]
    assert len(kinds) == len(set(kinds)) and {"nmp", "tiles"} <= set(kinds) <= set(backend_names())


class Clock:
    """In place of `time.perf_counter`: moves only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float, code_seconds: float) -> None:
        self.now += seconds
        with making_code.making_code():
            self.now += code_seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(making_code.time, "perf_counter", clock)
    return clock


def test_times_of_one_name_add_up(clock: Clock) -> None:
    watch = Stopwatch()
    for seconds in (1.0, 2.0):
        with watch.part("work"):
            clock.work(seconds, 50.0)
    assert watch.seconds == {"work": 3.0} and watch.machine_code_s == 100.0


def test_a_built_model_took_no_machine_code(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    class SlowDoor:
        def read_onnx(self, model: object, shapes: object) -> tuple[object, dict[str, object]]:
            clock.work(5.0, 500.0)
            return model, {}

        def inputs(self, model: object) -> tuple[object, ...]:
            return ()

        def build(self, *arguments: object) -> object:
            clock.work(3.0, 40.0)
            return arguments

    monkeypatch.setattr(models, "door", SlowDoor)
    assert models.build_onnx(object(), target=None).compile_s == pytest.approx(3.0)
