"""Accuracy over any number of samples, here or in workers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from threading import Lock

import numpy as np
from threadpoolctl import threadpool_limits

from tvm_npu.accuracy.counts import Counts
from tvm_npu.accuracy.results import Accuracy, Labelled, RegionErrors
from tvm_npu.accuracy.runs import ModelRuns
from tvm_npu.door.given_inputs import checked_inputs
from tvm_npu.door.models import PartitionedModel
from tvm_npu.errors import AccuracyError
from tvm_npu.runtime.errors import RunError
from tvm_npu.sim.limits import DEFAULT, Limits, check_limits
from tvm_npu.sim.numbers import check_whole
from tvm_npu.sim.texts import shown
from tvm_npu.sweep.engines import Engine, Shared, content_of, run_tasks
from tvm_npu.temporary import temporary_folder

SAMPLES_A_TASK = 16
_ONE_AT_A_TIME = Lock()


def measure(
    model: PartitionedModel,
    samples: Iterable[Labelled],
    *,
    layer_samples: int = 8,
    simulated: int = 1,
    progress: Callable[[int], None] = lambda images: None,
    engine: Engine | None = None,
    limits: Limits = DEFAULT,
) -> Accuracy:
    """Runs ``model`` on all samples, in float (unless the first sample says its outputs; then each
    must) and as the NPU computes it.

    The errors of layers are those over the first ``layer_samples`` samples; the simulator runs the
    first ``simulated`` ones, in this process and under ``limits``. The samples behind these run by
    the workers of ``engine``, if given; what comes out is the same. ``progress`` is called with the
    number of images so far.
    Raises AccuracyError without samples, where the simulator differs from the reference, where
    a sample ends its worker (of several errors that of the first sample), and for an ``engine``
    with a model that `check_can_be_sent` refuses. Raises LimitError, or the machine's trap, where
    the simulator would take more than ``limits`` allow.
    """
    if engine is not None:
        check_can_be_sent(model)
    for name, given in (("layer_samples", layer_samples), ("simulated", simulated)):
        check_whole(given, name, AccuracyError)
    check_limits(limits)
    rest = _checked(samples, model)
    first = next(rest, None)
    if first is None:
        raise AccuracyError("there are no images; at least 1 is needed")
    rest, counts = chain([first], rest), Counts()
    here = None if engine is None else max(layer_samples, simulated, 1)
    number = 0
    with closing(ModelRuns(model, first.wanted is not None)) as runs:
        if simulated:
            runs.simulate(limits)
        for number, one in enumerate(islice(rest, here), 1):
            counts.join(runs.counted(one, number, layer_errors=number <= layer_samples))
            if number >= simulated:
                runs.stop_simulating()
            progress(counts.images)
    if engine is not None:
        for found in _by_workers(model, rest, number, first.wanted is not None, engine):
            for more in found:
                counts.join(more)
            progress(counts.images)
    regions = [
        RegionErrors(symbol, tuple(one.worst_first()))
        for symbol, one in (runs.errors.items() if layer_samples else ())
    ]
    cycles = sum(one.cycles for one in runs.fixed.values()) if simulated else None
    return counts.result(runs.is_quantized, min(simulated, number), cycles, tuple(regions))


def _checked(samples: Iterable[Labelled], model: PartitionedModel) -> Iterator[Labelled]:
    """``samples`` as they come; AccuracyError for one that is none, or not of the model's inputs,
    which TVM would run on whatever its memory holds."""
    if not isinstance(samples, Iterable) or isinstance(samples, str | bytes | Mapping):
        raise AccuracyError(
            f"samples are a {type(samples).__name__}; expected an iterable of Labelled"
        )
    specs = model.door.inputs(model.mod)
    for number, one in enumerate(samples, 1):
        if not isinstance(one, Labelled):
            raise AccuracyError(
                f"sample {number} is a {type(one).__name__}; expected a Labelled(sample, labels)"
            )
        labels = one.labels
        if labels is not None and not (
            isinstance(labels, tuple) and all(isinstance(n, int | np.integer) for n in labels)
        ):
            raise AccuracyError(
                f"labels of sample {number} are {shown(labels)}; expected a tuple of whole numbers"
            )
        try:
            yield replace(one, sample=checked_inputs(one.sample, specs))
        except RunError as error:
            raise AccuracyError(f"sample {number}: {error}") from error


def check_can_be_sent(model: PartitionedModel) -> None:
    """Raises AccuracyError where workers cannot get ``model``."""
    if not model.door.modules_pickle:
        raise AccuracyError(
            f"models of TVM's door {model.door.name!r} cannot be sent to workers; take one worker, "
            "or Relay's TVM (pip install 'tvm-npu[relay]')"
        )


def _by_workers(
    model: PartitionedModel,
    samples: Iterator[Labelled],
    before: int,
    has_outputs: bool,
    engine: Engine,
) -> Generator[list[Counts], None, None]:
    """Counts, or the error, in the order of the samples, whatever the order in which workers
    end."""
    with temporary_folder("tvm-npu-accuracy-") as folder:
        file = Path(folder) / "model"
        file.write_bytes(pickle.dumps((model, has_outputs)))
        shared = engine.share(file)
        waiting: dict[int, list[Counts] | Exception] = {}
        shown = 0
        with closing(run_tasks(engine, count, _tasks(shared, samples, before))) as results:
            for number, found in results:
                waiting[number] = found
                while shown in waiting:
                    yield _counts(waiting.pop(shown), before + shown * SAMPLES_A_TASK + 1)
                    shown += 1


def _counts(found: list[Counts] | Exception, first: int) -> list[Counts]:
    """Raises the error of the task whose first sample has number ``first``."""
    if isinstance(found, AccuracyError):
        raise found
    if isinstance(found, Exception):
        raise AccuracyError(
            f"samples {first} to {first + SAMPLES_A_TASK - 1} could not be run: "
            f"{type(found).__name__}: {found}"
        ) from found
    return found


def _tasks(
    shared: Shared, samples: Iterator[Labelled], before: int
) -> Iterator[tuple[Shared, list[Labelled], int]]:
    while part := list(islice(samples, SAMPLES_A_TASK)):
        yield shared, part, before + 1
        before += len(part)


def count(shared: Shared, samples: list[Labelled], first: int) -> list[Counts]:
    """Of samples whose first has number ``first``, on one thread of a worker at a time: a worker's
    tasks share one `ModelRuns`. One that fails runs no more samples, so the next task makes its
    own."""
    with _ONE_AT_A_TIME, threadpool_limits(1):
        try:
            runs = _runs(shared)
            return [runs.counted(one, number) for number, one in enumerate(samples, first)]
        except BaseException:
            _runs.cache_clear()
            raise


@lru_cache(maxsize=1)
def _runs(shared: Shared) -> ModelRuns:
    return ModelRuns(*pickle.loads(content_of(shared)))
