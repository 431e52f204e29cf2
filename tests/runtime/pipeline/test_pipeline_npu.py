"""A stage whose work is done by a simulated NPU, alone: its program file in a process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.runtime.networks import compiled, machine, network
from tests.runtime.pipeline.stages import places
from tvm_npu.runtime.pipeline import Deployment, Pipeline, TensorSpec, npu_program
from tvm_npu.runtime.pipeline.errors import StageNotLoaded
from tvm_npu.runtime.session import Session
from tvm_npu.sim.limits import Limits


@pytest.fixture(scope="module")
def program_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "region.npu"
    path.write_bytes(compiled(machine())[0].to_bytes())
    return path


def stage(path: Path) -> tuple:
    program = compiled(machine())[0]
    return tuple(
        tuple(TensorSpec(slot.name, (1, *slot.shape)) for slot in slots)
        for slots in (program.inputs, program.outputs)
    )


def test_results_are_the_session_s(program_file: Path) -> None:
    inputs, outputs = stage(program_file)
    _, samples = network()
    session = Session.from_file(program_file)
    artifact = npu_program(
        "npu", program_file, inputs, outputs, limits=Limits(work=1 << 30, host_bytes=1 << 32)
    )
    frames = [
        {spec.name: samples[(n + k) % len(samples)][None] for k, spec in enumerate(inputs)}
        for n in range(3)
    ]
    with Pipeline(Deployment((artifact,), (0,)), places(1)) as pipeline:
        results = list(pipeline.run(frames))
    for frame, result in zip(frames, results, strict=True):
        expected = session.run([frame[spec.name] for spec in inputs])
        for spec, values in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(result.outputs[spec.name], values)


def test_wrong_tensors_and_files(program_file: Path, tmp_path: Path) -> None:
    inputs, outputs = stage(program_file)
    renamed = (TensorSpec("unknown", inputs[0].shape), *inputs[1:])
    bad = tmp_path / "bad.npu"
    bad.write_bytes(program_file.read_bytes()[:-7])
    limited = npu_program("npu", program_file, inputs, outputs, limits=Limits(work=9))
    for artifact, message in (
        (npu_program("npu", program_file, renamed, outputs), r"inputs .*\bunknown\b.*; program"),
        (npu_program("npu", bad, inputs, outputs), "'npu' could not be loaded on place 'p0': .*"),
        (npu_program("npu", tmp_path / "none", inputs, outputs), "FileNotFoundError"),
        (limited, r"Trap: .* more than 9 products"),
    ):
        with pytest.raises(StageNotLoaded, match=message):
            Pipeline(Deployment((artifact,), (0,)), places(1))
