"""Samples in workers: those of one thread or several, and some that fail."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tvm_npu.accuracy import Labelled, measure, measuring
from tvm_npu.calibration import InputSpec
from tvm_npu.door.models import PartitionedModel
from tvm_npu.errors import AccuracyError

CLASSES = 5
FAILS = CLASSES


@dataclass(frozen=True)
class FakeDoor:
    modules_pickle: bool = True
    name: str = "a fake"

    def inputs(self, mod: None) -> tuple[InputSpec, ...]:
        return (InputSpec("class", (), "int64"),)


@dataclass(frozen=True)
class FakeModel:
    """Says the class that a sample holds, after a while, with nothing on the NPU."""

    door: FakeDoor = field(default_factory=FakeDoor)
    symbols: tuple[str, ...] = ()
    mod: None = None

    def run(self, runners: list[Any], samples: Iterable[dict[str, Any]]) -> Iterator[Any]:
        for sample in samples:
            time.sleep(0.001)
            if sample["class"] >= FAILS:
                raise ValueError(f"class {sample['class']}")
            yield [[np.eye(CLASSES)[sample["class"]][None]] for _ in runners]


class Threads:
    """One worker with several threads, as Dask's may have."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def share(self, file: Path) -> bytes:
        return file.read_bytes()

    def executor(self) -> Executor:
        return ThreadPoolExecutor(self.workers)

    def stop(self) -> None:
        pass


def model(**door: Any) -> PartitionedModel:
    return cast(PartitionedModel, FakeModel(FakeDoor(**door)))


def labelled(*classes: int) -> list[Labelled]:
    return [Labelled({"class": np.int64(one)}, (int(one),)) for one in classes]


def last_first(
    where: Any, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]
) -> Generator[tuple[int, Any], None, None]:
    """`run_tasks` with workers that end in the opposite order."""
    for number, task in reversed(list(enumerate(tasks))):
        try:
            yield number, function(*task)
        except Exception as error:
            yield number, error


def test_threads_of_a_worker_count_their_own_samples() -> None:
    samples = labelled(*np.random.default_rng(3).integers(CLASSES, size=140).tolist())
    here = measure(model(), samples, layer_samples=0, simulated=0)
    found = measure(model(), samples, layer_samples=0, simulated=0, engine=Threads(3))
    assert found == here and found.top1_npu == found.labelled == 140


@pytest.mark.parametrize("order", [None, last_first])
def test_the_error_of_the_first_sample_is_said(
    order: Callable[..., Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever worker ends first; other samples of the same worker run nevertheless."""
    if order is not None:
        monkeypatch.setattr(measuring, "run_tasks", order)
    classes = [0] * 100
    classes[39], classes[79] = FAILS, FAILS + 1
    seen: list[int] = []
    with pytest.raises(AccuracyError) as raised:
        measure(
            model(), labelled(*classes), layer_samples=0, simulated=0, progress=seen.append,
            engine=Threads(3),
        )  # fmt: skip
    assert str(raised.value) == "samples 34 to 49 could not be run: ValueError: class 5"
    assert seen == [1, 17, 33]


def test_a_worker_whose_sample_failed_runs_others() -> None:
    shared = pickle.dumps((model(), False))
    for _ in range(2):
        with pytest.raises(ValueError, match="class 5"):
            measuring.count(shared, labelled(1, FAILS), 1)
    (found,) = measuring.count(shared, labelled(2), 3)
    assert found.images == 1 and found.top1[0] == 1


def test_models_that_cannot_be_sent_run_no_sample() -> None:
    samples = iter(labelled(1, 2))
    with pytest.raises(AccuracyError, match="'a fake' cannot be sent to workers; take one worker"):
        measure(model(modules_pickle=False), samples, simulated=0, engine=Threads(1))
    assert len(list(samples)) == 2


def test_another_number_of_labels_names_the_sample() -> None:
    samples = [*labelled(1, 2), Labelled({"class": np.int64(3)}, (3, 4))]
    with pytest.raises(AccuracyError, match="^sample 3: 2 labels for 1 images; each needs one$"):
        measure(model(), samples, layer_samples=0, simulated=0)
