"""What can go wrong with a pipeline: every message names stage, place and frame where it knows."""

from __future__ import annotations

from tvm_npu.runtime.errors import RunError


class PipelineError(RunError):
    """Base of everything that a pipeline raises on purpose."""


class ArtifactError(PipelineError, ValueError):
    """Stages that contradict themselves or do not fit together."""


class PlaceError(PipelineError, ValueError):
    """A place that does not exist on this machine, or is given twice."""


class FrameError(PipelineError, ValueError):
    """A frame that is not what the first stage takes. Nothing of it went in."""


class PipelineFull(PipelineError, TimeoutError):
    """No room for the frame in time: results are not taken as fast as frames come."""


class PipelineEmpty(PipelineError, TimeoutError):
    """No result in time."""


class StageError(PipelineError):
    """A stage failed. ``stage`` and ``place`` are names; ``frame`` is the number (from 0) of the
    last frame that the stage finished, -1 before the first; ``delivered`` is how many frames the
    pipeline handed out, which are 0 ... delivered - 1, each once and in order."""

    def __init__(self, message: str, *, stage: str, place: str, frame: int, delivered: int) -> None:
        super().__init__(message)
        self.stage, self.place, self.frame, self.delivered = stage, place, frame, delivered


class StageDied(StageError):
    """The stage's process ended by a signal or an exit without a word."""


class StageRaised(StageError):
    """The stage's code raised an exception; its text is in the message."""


class StageHung(StageError):
    """The stage worked on one frame for longer than the pipeline's timeout."""


class StageNotLoaded(StageError):
    """The stage's artifact could not be loaded."""
