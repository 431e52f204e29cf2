"""What can go wrong with a pipeline. Messages name the stage, place and frame if they are known."""

from __future__ import annotations

from tvm_npu.runtime.errors import RunError


class PipelineError(RunError):
    """Base of everything that a pipeline raises on purpose."""


class ArtifactError(PipelineError, ValueError):
    """Stages that contradict themselves or do not fit together."""


class PlaceError(PipelineError, ValueError):
    """A place that does not exist on this machine, or is given twice."""


class FrameError(PipelineError, ValueError):
    """A frame that does not fit the first stage's inputs; it is not put in."""


class PipelineFull(PipelineError, TimeoutError):
    """There was no room for a frame within the timeout: results are taken too slowly."""


class PipelineEmpty(PipelineError, TimeoutError):
    """No result came within the timeout."""


class StageError(PipelineError):
    """A stage failed. ``stage`` and ``place`` are names; ``frame`` is the number (from 0) of the
    last frame that the stage finished, -1 before the first; ``delivered`` is how many frames the
    pipeline handed out, which are 0 ... delivered - 1, each once and in order."""

    def __init__(self, message: str, *, stage: str, place: str, frame: int, delivered: int) -> None:
        super().__init__(message)
        self.stage, self.place, self.frame, self.delivered = stage, place, frame, delivered


class StageDied(StageError):
    """The stage's process was killed by a signal, or exited without an error message."""


class StageRaised(StageError):
    """The stage's code raised an exception; its text is in the message."""


class StageHung(StageError):
    """The stage worked on one frame for longer than the pipeline's timeout."""


class StageNotLoaded(StageError):
    """The stage's artifact could not be loaded."""
