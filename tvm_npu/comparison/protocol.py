"""What a runner does; its file in `tvm_npu.comparison.runners` is all that the project knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from tvm_npu.calibration import Sample
from tvm_npu.comparison.task import Cost, Task


class Built(Protocol):
    """A model that is ready to run."""

    def run(self, inputs: Sample) -> list[NDArray[Any]]:
        """All outputs."""
        ...

    def cost(self, inputs: Sample, repeats: int) -> Cost:
        """Of one inference."""
        ...

    def library_bytes(self, folder: Path) -> int | None:
        """Size of what would be deployed, written to ``folder``; None where nothing is."""
        ...

    def about(self) -> Mapping[str, Any]:
        """Further fields of `Measured`, known after the first run."""
        ...


class Runner(Protocol):
    """A way to run a model. ``has_machines`` says whether it is asked once for each machine,
    precision and planner; ``has_door`` whether it needs TVM; ``tunes`` whether it takes a number
    of trials and a folder for their log."""

    name: str
    has_machines: bool
    has_door: bool
    tunes: bool

    def missing(self) -> str | None:
        """What has to be installed before it can run; None when nothing is missing. Imports
        nothing."""
        ...

    def prepare(self, task: Task) -> None:
        """Imports what it needs, so that memory and times can be told from those of imports."""
        ...

    def build(self, task: Task) -> Built:
        """From the model's file, in phases (`codegen.phases`). May raise anything."""
        ...
