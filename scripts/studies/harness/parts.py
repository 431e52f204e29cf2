"""Parts one after the other; those of an interrupted run are not computed again."""

from __future__ import annotations

import inspect
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from studies.harness.study import Bench, Key, Part, Study
from studies.harness.work import WorkFolder, code_version, options_version
from tvm_npu.cli.terminal import Steps


class Work:
    """Where finished values are kept; nowhere, where there is no output file to keep them beside.
    ``scratch`` is a folder either way."""

    def __init__(self, scratch: Path, kept: WorkFolder | None) -> None:
        self.scratch = scratch
        self.kept = kept

    def finished(self) -> None:
        """Nothing is needed any more."""
        if self.kept is not None:
            self.kept.remove()
            self.kept = None


@contextmanager
def opened(
    study: Study[Any], options: Mapping[str, Any], outputs: Sequence[Path], *, restart: bool
) -> Iterator[Work]:
    """``options``: those that values depend on. Raises StudyError."""
    regular = [path for path in outputs if path.is_file() or not path.exists()]
    if not regular:
        with tempfile.TemporaryDirectory(prefix="tvm-npu-study-") as folder:
            yield Work(Path(folder), None)
        return
    own = Path(inspect.getfile(type(study))).parent
    kept = WorkFolder(
        regular[0],
        code_version(own),
        options_version(study.name, dict(options)),
        restart=restart,
    )
    work = Work(kept.folder, kept)
    try:
        yield work
    finally:
        if work.kept is not None:
            work.kept.close()


def compute(
    parts: Sequence[Part[Any]],
    work: Work,
    steps: Steps,
    tell: Callable[[str], None] | None = None,
) -> dict[Key, Any]:
    """All values by key, in the order of ``parts``. Every value goes through its JSON, so that a
    run that was interrupted has the same ones as a run that was not. ``tell`` hears of each part
    that has been computed."""
    found: dict[Key, Any] = {}
    known = work.kept.values if work.kept is not None else {}
    for number, part in enumerate(parts, 1):
        assert part.key not in found, f"two parts are called {part.key}"
        adapter: TypeAdapter[Any] = TypeAdapter(part.kind)
        steps.begin(part.label)
        if part.key in known:
            plain = known[part.key]
        else:

            def say(text: str, label: str = part.label) -> None:
                steps.begin(f"{label}: {text}")

            begin = time.perf_counter()
            plain = adapter.dump_python(
                part.compute(Bench(found, work.scratch, say)), mode="json", warnings="error"
            )
            if work.kept is not None:
                work.kept.keep(part.key, plain)
            if tell is not None:
                spent = time.perf_counter() - begin
                tell(f"{number} of {len(parts)}: {part.label}: {spent:.1f} s")
        found[part.key] = adapter.validate_python(plain)
        steps.done()
    return found
