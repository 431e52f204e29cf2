"""Stages in Python for tests of pipelines: each names what it does to its frames."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from tvm_npu.runtime.pipeline import Place, StageArtifact, TensorSpec, python_function

Arrays = Mapping[str, np.ndarray]
Function = Callable[[Arrays], Arrays]
SHAPE = (4,)
CORES = tuple(sorted(os.sched_getaffinity(0)))


def affine(options: Mapping[str, str]) -> Function:
    """x -> x * factor + offset; ``delay_s`` (mean of a random delay), ``jitter_seed``."""
    factor, offset = float(options.get("factor", 1)), float(options.get("offset", 0))
    delay_s = float(options.get("delay_s", 0))
    generator = random.Random(int(options.get("jitter_seed", 0)))

    def run(inputs: Arrays) -> Arrays:
        if delay_s:
            time.sleep(generator.random() * 2 * delay_s)
        return {options["out"]: inputs[options["in"]] * factor + offset}

    return run


def failing(options: Mapping[str, str]) -> Function:
    """The identity until ``at``, where it does ``how``: raise, hang, kill, exit or wrong."""
    count = 0

    def run(inputs: Arrays) -> Arrays:
        nonlocal count
        values = inputs[options["in"]]
        if count == int(options["at"]):
            _misbehave(options["how"], values)
            if options["how"] == "wrong":
                return {options["out"]: values[:2]}
        count += 1
        return {options["out"]: values.copy()}

    return run


def _misbehave(how: str, values: np.ndarray) -> None:
    if how == "raise":
        raise ValueError(f"cannot take {values[0]:g}")
    if how == "hang":
        time.sleep(1000)
    if how.startswith("fork"):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        Path(how.removeprefix("fork ")).write_text(str(child))
        os.kill(os.getpid(), signal.SIGKILL)
    if how.startswith("start"):
        started = subprocess.Popen(["sleep", "60"], close_fds=False)
        Path(how.removeprefix("start ")).write_text(str(started.pid))
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "long":
        raise ValueError("x" * 10_000_000)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        os._exit(3)


def unloadable(options: Mapping[str, str]) -> Function:
    raise OSError("weights are missing")


def slow_to_load(options: Mapping[str, str]) -> Function:
    time.sleep(float(options["load_s"]))
    return affine(options)


def sleeper(options: Mapping[str, str]) -> Function:
    """x -> x + ``layers``, in ``seconds`` times the number that stands in the file ``speed``."""
    speed = Path(options["speed"])

    def run(inputs: Arrays) -> Arrays:
        time.sleep(float(options["seconds"]) * float(speed.read_text()))
        return {options["out"]: inputs[options["in"]] + float(options["layers"])}

    return run


def where(options: Mapping[str, str]) -> Function:
    """Returns process id and the cores it may use, two at most."""

    def run(inputs: Arrays) -> Arrays:
        cores = sorted(os.sched_getaffinity(0))
        found = [os.getpid(), len(cores), *cores, -1, -1]
        return {options["out"]: np.array(found[:4], np.float64)}

    return run


def make(
    function: str,
    index: int,
    *,
    last: bool = False,
    carried: tuple[str, ...] = (),
    **options: object,
) -> StageArtifact:
    """Stage ``index`` of a chain x0 -> x1 -> ... -> y of float64 vectors."""
    source, target = f"x{index}", "y" if last else f"x{index + 1}"
    skip = tuple(TensorSpec(name, SHAPE, "float64") for name in carried)
    return python_function(
        f"s{index}",
        f"{Path(__file__)}:{function}",
        (TensorSpec(source, SHAPE, "float64"), *skip),
        (TensorSpec(target, SHAPE, "float64"), *skip),
        {"in": source, "out": target, **{key: str(value) for key, value in options.items()}},
    )


def places(count: int) -> list[Place]:
    """On the cores that there are, several places on one if need be."""
    return [Place(f"p{n}", (CORES[n % len(CORES)],)) for n in range(count)]


def frame(number: int) -> dict[str, np.ndarray]:
    return {"x0": np.arange(4.0) + number}


def numbers(results: list) -> list[float]:
    return [float(result.outputs["y"][0]) for result in results]
