"""The labelled images of a sweep's model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_npu.calibration import InputSpec, Sample
from tvm_npu.calibration_files import calibration_files
from tvm_npu.sim.bounded_files import read_bounded
from tvm_npu.sim.lazy import cached_property
from tvm_npu.sim.texts import cause
from tvm_npu.sweep.spec import Images, SweepError

if TYPE_CHECKING:
    from tvm_npu.accuracy.images import LabelledImages, Preparation
    from tvm_npu.accuracy.results import Labelled


class ModelImages:
    """What `Images` name, for the model that they are of."""

    def __init__(self, said: Images) -> None:
        self.said = said

    @cached_property
    def preparation(self) -> Preparation:
        from tvm_npu.accuracy.images import PRESETS, Arithmetic, Preparation

        said = self.said
        if said.preset is not None:
            return Preparation(PRESETS[said.preset], said.fit)
        scale = 1.0 if said.scale is None else said.scale
        mean, std = tuple(said.mean or (0.0,)), tuple(said.std or (1.0,))
        return Preparation(Arithmetic(scale, mean, std, bool(said.bgr)), said.fit)

    @cached_property
    def digest(self) -> str:
        """Of all that the model's ranges depend on. Raises SweepError for files that cannot be
        read."""
        said, digest = self.said, hashlib.sha256()
        digest.update(repr((self.preparation, said.layout, said.calibration)).encode())
        try:
            files = calibration_files(Path(said.images))
            for path in (*files, *([Path(said.labels)] if said.labels else [])):
                content = read_bounded(path)
                digest.update(repr((path.name, len(content))).encode() + content)
        except (OSError, ValueError) as error:
            file = getattr(error, "filename", None)
            which = f" ({file!r})" if file else ""
            raise SweepError(
                f"images {said.images!r} cannot be read{which}: {cause(error)}"
            ) from error
        return digest.hexdigest()

    def calibration(self, inputs: Sequence[InputSpec]) -> Iterator[Sample]:
        """Of the first images. Raises AccuracyError and CalibrationError."""
        return islice(self._all(inputs).samples(), self.said.calibration)

    def labelled(self, inputs: Sequence[InputSpec]) -> Iterator[Labelled]:
        """All that count. Raises as `calibration`."""
        return islice(self._all(inputs), self.said.limit)

    def _all(self, inputs: Sequence[InputSpec]) -> LabelledImages:
        from tvm_npu.accuracy.images import LabelledImages

        said = self.said
        return LabelledImages(
            Path(said.images), tuple(inputs), self.preparation,
            None if said.labels is None else Path(said.labels), said.layout,
        )  # fmt: skip
