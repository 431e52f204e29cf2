"""Errors and warnings of the doors: every message names the thing, the value and the limit."""

from __future__ import annotations

from tvm_npu.sim.errors import BoundedError


class NpuError(BoundedError):
    """Base of everything that the doors raise on purpose."""


class DoorError(NpuError, ImportError):
    """No TVM is installed that the project has a door to."""


class MissingOnnxError(NpuError, ModuleNotFoundError):
    """The package onnx, which builders of models need, is not installed."""


class MissingTorchError(NpuError, ModuleNotFoundError):
    """The package torch, which models of torch.export are made with, is not installed."""


class TargetError(NpuError, ValueError):
    """A target, machine or option that does not exist or contradicts itself."""


class PartitionError(NpuError, ValueError):
    """A module that cannot be partitioned at all (not merely: runs on the CPU)."""


class CalibrationError(NpuError, ValueError):
    """Calibration data that does not fit the model's inputs."""


class CpuCodeError(NpuError, RuntimeError):
    """A part of a model that TVM cannot compile for the CPU."""


class ImportRegionError(NpuError, ValueError):
    """A region function that is not what partitioning makes."""


class CutError(NpuError, ValueError):
    """A module that cannot be cut into pipeline stages, or a range of layers that it lacks."""


class AccuracyError(NpuError, ValueError):
    """Images or labels that do not fit the model or each other, or a wrong result."""


class VerificationError(NpuError, ValueError):
    """A program that is not of the model and machine that it should be verified against."""


class ComparisonError(NpuError, RuntimeError):
    """A runner of a comparison that cannot run the model, or is not installed."""


class FlatCalibrationWarning(UserWarning):
    """Calibration data has so few distinct values that ranges mean nothing."""


class ImagesLeftOutWarning(UserWarning):
    """The last images do not fill a batch of the model."""


class SyntheticCalibrationWarning(UserWarning):
    """Ranges were taken from random input; accuracy on real data is unknown."""


class ScalesApproximatedWarning(UserWarning):
    """A quantized model runs on a machine that cannot use its scales."""


class DroppedBoundWarning(UserWarning):
    """TVM's own ONNX frontend has dropped a bound of a Clip."""


class NothingOffloadedWarning(UserWarning):
    """No operator of the model runs on the NPU."""
