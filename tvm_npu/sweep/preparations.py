"""Models of sweeps prepared in a folder, each for all machines that it is the same for.

What a machine gets of a model depends on the machine by few questions (does this window fit?): a
prepared model stands beside them, and serves every machine that answers them alike.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from tvm_npu.codegen.graph.digests import graph_digest
from tvm_npu.codegen.least import DRAM, Questions, asked_needs, other_answer
from tvm_npu.sim.bounded_files import MOST_TEXT_BYTES, read_bounded
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.texts import TextError, check_values, cut
from tvm_npu.sim.whole_files import write_whole
from tvm_npu.sweep.kept_models import FORMAT, model_to_bytes
from tvm_npu.sweep.models import ModelSource, NothingRunsError, prepare
from tvm_npu.sweep.spec import SweepError

_Extent = Annotated[int, Field(strict=True, ge=1, le=1 << 40)]
_Name = Literal[
    "conv_input", "conv_weight", "biases", "dense_input", "padded_pixel", "pool_input", "DRAM"
]
MOST_VALUES = 1 << 18
"""Of the questions of a model; each has some."""
_Asked = tuple[_Name, tuple[_Extent | tuple[_Extent, _Extent], ...], bool]
_FILE = TypeAdapter(tuple[str, tuple[_Asked, ...]])
assert DRAM == "DRAM"


class OtherRegionsError(SweepError):
    """A machine that would run other operators of a model than the sweep's first of its kind."""


@dataclass(frozen=True)
class PreparedModel:
    """``file`` holds what `models.prepare` made of ``source``, None where no operator runs on its
    machine: ``nothing`` says why. ``regions`` is a digest of their float graphs."""

    source: ModelSource
    asked: Questions
    regions: str
    file: Path | None
    nothing: str = ""

    def serves(self, machine: MachineDescription) -> bool:
        """Whether it would be the same for ``machine``, of the same kind, requantize step and
        layers. Raises SweepError for questions that make no sense."""
        try:
            return other_answer(self.asked, machine, self.source.precision) is None
        except (TypeError, ValueError, ArithmeticError) as error:
            raise _damaged(self.file, error) from error

    def check_regions(self, machine: MachineDescription, first: PreparedModel) -> None:
        """Raises OtherRegionsError where ``first``, prepared for the sweep's first machine, has
        other regions; NothingRunsError where that has none."""
        if first.file is None:
            raise NothingRunsError(first.nothing)
        if self.regions != first.regions:
            other = other_answer(first.asked, machine, self.source.precision)
            name, arguments = other or ("layers", ())
            what = f"{name} {', '.join(map(str, arguments))}".strip()
            raise OtherRegionsError(
                f"machine {machine.name!r} would run other operators of model "
                f"{self.source.name!r} on the NPU than this sweep's first machine of its kind, "
                f"{first.source.machine.name!r} (they differ in room for: {what}), and figures of "
                "other work cannot be compared; name a machine first that takes all that others "
                "take, or sweep this one by itself"
            )


def prepared(source: ModelSource, folder: Path) -> PreparedModel:
    """In ``folder``, made unless it is there. Raises SweepError for a damaged folder."""
    stem = f"{source.digest}-{FORMAT}"
    for path in sorted(folder.glob(f"{stem}-*.asked")):
        found = _read(source, path)
        if found.serves(source.machine) and found.file is not None and found.file.exists():
            return found
    with asked_needs() as asked:
        try:
            model = prepare(source)
        except NothingRunsError as error:
            return PreparedModel(source, dict(asked), "", None, str(error))
    regions = graph_digest(tuple(region.graph for region in model.regions))
    content = json.dumps(
        (regions, [(name, arguments, fits) for (name, arguments), fits in asked.items()])
    ).encode()
    file = folder / f"{stem}-{hashlib.sha256(content).hexdigest()[:16]}.model"
    write_whole(file, model_to_bytes(model))
    write_whole(file.with_suffix(".asked"), content)  # last: it says that the model is there
    return PreparedModel(source, dict(asked), regions, file)


def prepared_files(folder: Path) -> list[Path]:
    """All that `prepared` wrote into ``folder``: another folder with them has those models, too."""
    return sorted((*folder.glob("*.model"), *folder.glob("*.asked")))


def _read(source: ModelSource, path: Path) -> PreparedModel:
    try:
        content = read_bounded(path, MOST_TEXT_BYTES)
        check_values(content, MOST_VALUES)
        regions, asked = _FILE.validate_json(content)
    except (OSError, TextError, ValidationError) as error:
        raise _damaged(path, error) from error
    known: Questions = {(name, arguments): fits for name, arguments, fits in asked}
    return PreparedModel(source, known, regions, path.with_suffix(".model"))


def _damaged(path: Path | None, why: Exception) -> SweepError:
    return SweepError(
        f"the questions of a prepared model, {str(path)!r}, cannot be used ({cut(str(why), 400)}); "
        "remove the "
        "folder's .asked files, which are made again"
    )
