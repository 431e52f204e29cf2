"""`tvm-npu verify`: right programs, a changed one, and one of another machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)

import tvm_npu  # noqa: E402
from tvm_npu.codegen.program.format import Program  # noqa: E402
from tvm_npu.errors import VerificationError  # noqa: E402

pytestmark = pytest.mark.relay


def test_a_right_program(run, lenet, digits_npz, lenet_program, tmp_path):
    target = tmp_path / "found.json"
    code, out, _ = run(
        "verify", lenet, "--calibration", digits_npz, "--program", lenet_program, "--json", target
    )
    assert code == 0 and "all tensors of 4 layers are what the reference computes" in out
    (found,) = json.loads(target.read_text())["regions"]
    assert found["divergence"] is None and found["layers"] == 4


def test_a_changed_program_names_layer_instruction_and_both_values(
    run, lenet, digits_npz, lenet_program, tmp_path
):
    """The biases of a layer are the constants that change most results at once: all constants but
    the table of addresses are turned round in their lowest bit but three."""
    program = Program.from_file(lenet_program)
    constants = np.frombuffer(program.constants, np.uint8).copy()
    constants[: program.parameter_offset or len(constants)] ^= 8
    wrong = tmp_path / lenet_program.name
    replace(program, constants=constants.tobytes()).to_file(wrong)
    target, inputs = tmp_path / "found.json", tmp_path / "image.npz"
    with np.load(digits_npz) as arrays:
        np.savez(inputs, image=arrays["image"][1:2])
    code, out, _ = run(
        "verify", lenet, "--calibration", digits_npz, "--program", wrong, "--inputs", inputs,
        "--json", target,
    )  # fmt: skip
    assert code == 1
    (region,) = json.loads(target.read_text())["regions"]
    found = region["divergence"]
    assert found["kind"] == "value" and found["layer"] == program.layers[0].name
    one = found["element"]
    assert one["found"] != one["expected"]
    assert f"is {one['found']} " in out and f"the reference has {one['expected']} " in out
    assert found["place"]["instruction"] in out and f"layer {found['layer']!r}" in out


def test_a_program_of_another_machine(run, lenet, digits_npz, lenet_program):
    code, _, err = run(
        "verify", lenet, "--calibration", digits_npz, "--machine", "setup-a",
        "--program", lenet_program,
    )  # fmt: skip
    assert code == 1 and "give the machine, precision, planner" in err
    with pytest.raises(VerificationError):
        tvm_npu.verify(
            lenet, "setup-a", np.load(digits_npz)["image"],
            programs={lenet_program.stem: Program.from_file(lenet_program)},
        )  # fmt: skip


def test_from_python(lenet: Path, digits_npz: Path) -> None:
    (found,) = tvm_npu.verify(lenet, "snowflake-1cc", np.load(digits_npz)["image"])
    assert found.divergence is None and found.layers == 4


def test_a_program_in_the_place_of_the_model(run, lenet_program):
    code, _, err = run("verify", lenet_program)
    assert code == 1 and "is a program, not a model" in err
    assert f"--program '{lenet_program}'" in " ".join(err.split())
