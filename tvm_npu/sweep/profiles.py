"""Profiles of the best designs of a sweep, as pages."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from tvm_npu.errors import SyntheticCalibrationWarning
from tvm_npu.sim.limits import DEFAULT, Limits
from tvm_npu.sweep.designs import Design
from tvm_npu.sweep.models import model_bytes, onnx_model
from tvm_npu.sweep.run import SweepResult


def write_profiles(
    result: SweepResult,
    count: int,
    folder: Path,
    progress: Callable[[str], None],
    limits: Limits = DEFAULT,
) -> dict[tuple[Design, str], str]:
    """Simulates each model on the first ``count`` designs of the front, with random input, and
    writes what `tvm_npu.profile` finds into ``folder``; pages of these models that an earlier call
    left there are removed. The addresses are relative to the place beside it. ``limits`` as
    `profile` takes them. Raises what `profile` and `write_html` raise."""
    from tvm_npu.report.measure import profile

    found: dict[tuple[Design, str], str] = {}
    written: set[Path] = set()
    best = result.front_designs()[:count]
    for number, one in enumerate(best, 1):
        design = one.design
        assert design.machine is not None
        for place, model in enumerate(result.spec.models, 1):
            progress(f"profiling design {number} of {len(best)}: {Path(model).name}")
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{number}-{place}-{Path(model).stem}.html"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntheticCalibrationWarning)
                made = profile(
                    onnx_model(model, model_bytes(model)), design.machine,
                    planner=design.planner, precision=design.precision, limits=limits,
                )  # fmt: skip
            made.write_html(path)
            written.add(path)
            found[design, model] = quote(f"{folder.name}/{path.name}")
    stems = "|".join(re.escape(Path(model).stem) for model in result.spec.models)
    for path in set(folder.glob("*.html")) - written:
        if re.fullmatch(rf"\d+-\d+-({stems})\.html", path.name):
            path.unlink()
    return found
