"""Every mistake gives one clear line on stderr and the right exit code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.patience import PATIENCE_S

pytest.importorskip("onnx", reason="the relay extra is not installed")

ROOT = Path(__file__).parents[2]


def failing(run, code: int, *arguments: object) -> str:  # type: ignore[no-untyped-def]
    """The error line of a command that must fail with ``code``, without its prefix."""
    found, _, err = run(*arguments)
    assert found == code, err
    assert "Traceback" not in err
    last = err.rstrip("\n").splitlines()[-1]
    prefix, _, message = last.partition(": error: ")
    assert prefix == f"tvm-npu {arguments[0]}"
    return message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--precision", "int4"), "argument --precision: invalid choice: 'int4'"),
        (("--planner", "best"), "argument --planner: invalid choice: 'best'"),
        (("--runs", "0"), "argument --runs: '0' is not an integer of at least 1"),
        (("--runs", "many"), "argument --runs: 'many' is not an integer of at least 1"),
        (("--runs", "9" * 23), f"argument --runs: '{'9' * 23}' is more than 9223372036854775807"),
        (("--runs", "-" + "9" * 5000), f"argument --runs: '-{'9' * 75}... is not an integer of"),
        (("--std", "0"), "argument --std: '0' is not a number above 0 (from 1.2e-38 to 3.4e+38)"),
        (("--std", "1", "nan"), "argument --std: 'nan' is not a number above 0"),
        (("--scale", "nan"), "argument --scale: 'nan' is not a number from -3.4e+38 to 3.4e+38"),
        (("--mean", "1e39"), "argument --mean: '1e39' is not a number from -3.4e+38 to 3.4e+38"),
        (("--seed", "-1"), "argument --seed: '-1' is not an integer of at least 0"),
        (("--percentile", "0"), "argument --percentile: '0' is not a number above 0 and at most"),
        (("--percentile", "nan"), "argument --percentile: 'nan' is not a number above 0"),
        (("--shape", "image"), "argument --shape: 'image' is not NAME=EXTENT,EXTENT"),
        (("--shape", "image=1,0,8,8"), "argument --shape: 'image=1,0,8,8' is not NAME="),
    ],
)
def test_usage(run, lenet: Path, arguments: tuple[str, ...], message: str) -> None:
    assert failing(run, 2, "profile", lenet, *arguments).startswith(message)


READERS = ("machines", "platform show", "run-elf", "disasm", "profile", "run-ir", "sweep", "verify",
           "compare")  # fmt: skip


@pytest.mark.parametrize("command", READERS)
def test_files_that_cannot_be_read_are_told_in_words(run, tmp_path: Path, command: str) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    for path, why in ((tmp_path / "none.toml", "(No such file|there is none)"), (folder, "Is a")):
        message = failing(run, 1, *command.split(), path)
        assert re.search(f"{re.escape(repr(str(path)))}: {why}", message), message
        assert "Errno" not in message


@pytest.mark.parametrize("command", READERS)
def test_files_without_an_end_are_told_at_once(run, tmp_path: Path, command: str) -> None:  # type: ignore[no-untyped-def]
    huge, pipe = tmp_path / "huge.toml", tmp_path / "pipe.toml"
    huge.touch()
    os.truncate(huge, 60 << 30)
    os.mkfifo(pipe)
    for path, why in (
        (huge, "64424509440 bytes; such a file may have"), (pipe, "a named pipe"),
        (Path("/dev/zero"), "a device"),
    ):  # fmt: skip
        message = failing(run, 1, *command.split(), path)
        assert f"{str(path)!r}: {why}" in message, message


def test_calibration_from_a_pipe_is_told_at_once(run, lenet: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    os.mkfifo(tmp_path / "pipe.npy")
    message = failing(run, 1, "profile", lenet, "--calibration", tmp_path / "pipe.npy")
    assert "pipe.npy' is neither a folder nor a file" in message


def test_planner_names_are_in_the_message(run, lenet: Path) -> None:
    assert "'fixed-ws'" in failing(run, 2, "profile", lenet, "--planner", "best")


def test_no_command_and_help(run) -> None:  # type: ignore[no-untyped-def]
    code, _, err = run()
    assert code == 2 and "COMMAND" in err
    code, out, _ = run("--help")
    assert code == 0 and "exit codes:" in out and "tvm-npu profile lenet.onnx" in out
    for command in ("profile", "compile", "disasm", "run-elf", "machines", "planners"):
        code, out, _ = run(command, "--help")
        assert code == 0 and "examples:" in out


@pytest.mark.parametrize("arguments", [("--help",), ("planners",), ("machines", "nmp-4x8")])
def test_a_full_disk_behind_the_output(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tvm_npu.cli", *arguments],
            cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 1
    assert re.fullmatch(r"tvm-npu.*: error: no space left for the output\n", done.stderr)


@pytest.mark.parametrize("arguments", [("--version",), ("planners",)])
@pytest.mark.parametrize("closed", [1, 2])
def test_closed_streams_are_read_by_nobody(arguments: tuple[str, ...], closed: int) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}>&-', "sh", sys.executable, "-m", "tvm_npu.cli",
         *arguments],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == "" and bool(done.stdout) == (closed == 2)


def test_missing_file(run, tmp_path: Path) -> None:
    message = failing(run, 1, "profile", tmp_path / "no.onnx")
    assert message == f"cannot read model {str(tmp_path / 'no.onnx')!r}: No such file or directory"


@pytest.mark.parametrize("content", [b"", b"# a heading\n", b"\x7fELF" + bytes(60), bytes(1000)])
def test_not_an_onnx_file(run, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert failing(run, 1, "profile", path).startswith(f"{str(path)!r} is not an ONNX model: ")


def test_truncated_onnx_file(run, tmp_path: Path, lenet: Path) -> None:
    path = tmp_path / "half.onnx"
    path.write_bytes(lenet.read_bytes()[:20_000])
    assert failing(run, 1, "compile", path, "-o", tmp_path).startswith(
        f"{str(path)!r} is not an ONNX model: "
    )


def test_unknown_machine(run, lenet: Path) -> None:
    message = failing(run, 1, "profile", lenet, "--machine", "nmp-9x9")
    known = [line.split()[0] for line in run("machines")[1].splitlines()[3:] if line[0] != " "]
    listed = ", ".join(known)
    wanted = f"unknown machine 'nmp-9x9': neither a file nor one of {listed}"
    assert message == f"{wanted}; did you mean 'nmp-4x8'?"


def test_what_the_user_may_have_meant(run, lenet: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('extends = "setup-a"\nname = "own"\n[mover]\nsetup_cycle = 1.0\n')
    message = failing(run, 1, "machines", path)
    assert message.endswith("(value: 1.0); did you mean 'setup_cycles'? (line 4)")
    path.write_text('extends = "setup-a"\nname = "own"\n[memories]\nweigth_bytes = 128\n')
    assert "did you mean 'weight_bytes'?" in failing(run, 1, "machines", path)
    path.write_text('extends = "nmp-4x8"\nname = "own"\n[energie]\n')
    assert "did you mean 'energy'?" in failing(run, 1, "machines", path)
    path.write_text('extends = "nmp-4x8"\nname = "own"\nzebra = 1\n')
    assert "did you mean" not in failing(run, 1, "machines", path)
    for words, meant in (
        (("profile", lenet, "--planner", "exat"), "exact"),
        (("profile", lenet, "--precison", "int8"), "--precision"),
        (("profil", lenet), "profile"),
    ):
        code, _, err = run(*words)
        assert code == 2 and err.rstrip().endswith(f"; did you mean '{meant}'?"), err


def test_absurd_machine_file(run, lenet: Path, tmp_path: Path) -> None:
    path = tmp_path / "absurd.toml"
    text = (ROOT / "sim" / "machines" / "nmp-4x8.toml").read_text()
    path.write_text(text.replace("mb0_bytes = 8192", "mb0_bytes = -1"))
    message = failing(run, 1, "profile", lenet, "--machine", path)
    assert "memories.mb0_bytes" in message and "(value: -1)" in message and str(path) in message
    path.write_text("tles = ")
    assert "not TOML" in failing(run, 1, "machines", path)


@pytest.mark.parametrize(
    ("name", "reason"), [("no/x.json", "there is no folder"), ("", "it is a folder")]
)
def test_unwritable_json(run, lenet: Path, tmp_path: Path, name: str, reason: str) -> None:
    path = tmp_path / name
    message = failing(run, 1, "profile", lenet, "--json", path)
    assert message.startswith(f"cannot write {str(path)!r}: {reason}")
    assert failing(run, 1, "machines", "--json", path) == message


def test_compile_into_a_file(run, lenet: Path) -> None:
    assert "is no folder" in failing(run, 1, "compile", lenet, "-o", lenet)


def test_elf(run, lenet: Path, tmp_path: Path) -> None:
    assert "not an ELF file" in failing(run, 1, "run-elf", lenet)
    assert "No such file" in failing(run, 1, "run-elf", tmp_path / "no.elf")


@pytest.mark.relay
class TestWithTvm:
    @pytest.fixture(autouse=True)
    def _needs_relay(self) -> None:
        pytest.importorskip("tvm.relay", exc_type=ImportError)

    def test_no_region(self, run, make_onnx: Callable[..., Path]) -> None:
        path = make_onnx(["LRN"])
        code, out, err = run("profile", path)
        assert code == 1 and "nn.lrn: lrn0" in out
        assert err.endswith(
            f"error: no operator of {str(path)!r} runs on the NPU (operators left on the CPU: 1)\n"
        )

    def test_unknown_operator(self, run, make_onnx: Callable[..., Path]) -> None:
        message = failing(run, 1, "profile", make_onnx(["Foo"]))
        assert message.startswith("TVM cannot import the model: ") and message.endswith("Foo")

    def test_open_shape(self, run, make_onnx: Callable[..., Path]) -> None:
        path = make_onnx(["Conv"], ("N", 3, "H", "W"))
        message = failing(run, 1, "profile", path)
        assert message.startswith("input 'x' has the open shape (N, 3, H, W); set it with --shape")
        message = failing(run, 1, "profile", path, "--shape", "x=1,4,8,8")
        assert message == "--shape x=1,4,8,8 contradicts the model, which says (N, 3, H, W)"
        message = failing(run, 1, "profile", path, "--shape", "y=1,4,8,8")
        assert message == "--shape y: the model has no such input; it has x"

    def test_calibration(self, run, lenet: Path, tmp_path: Path) -> None:
        def message() -> str:
            return failing(run, 1, "profile", lenet, "--calibration", tmp_path)

        assert message().startswith("no .npy, .npz, .png, .jpg, .jpeg file in folder")
        (tmp_path / "notes.txt").write_text("x")
        (tmp_path / "more").mkdir()
        assert message().endswith("1 other files and 1 folders, which are not looked into")
        bad = tmp_path / "digit.npy"
        np.save(bad, np.zeros((1, 1, 9, 8), np.float32))
        assert message().startswith(f"{str(bad)!r}: calibration input 'image' has shape (1, 1, 9,")
        np.save(bad, np.full((1, 1, 8, 8), np.nan, np.float32))
        assert "has 64 NaN or infinite values of 64" in message()
        np.save(bad, np.full((1, 1, 8, 8), 1e300))
        assert "has 64 values of 64 that do not fit in float32 (the largest is 1e+300)" in message()
        bad.write_bytes(b"not an array")
        assert message().startswith(f"cannot read {str(bad)!r}: ")
        missing = tmp_path / "no"
        found = failing(run, 1, "profile", lenet, "--calibration", missing)
        assert found == f"there is no folder or file {str(missing)!r}"

    def test_errors_while_regions_run(
        self, run, make_onnx: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Through TVM's own frames, where a region waits for operators of the CPU."""
        from tvm_npu.runtime.errors import RunError
        from tvm_npu.runtime.session import Session

        def broken(self: object, inputs: object, **options: object) -> None:
            raise RunError("core 3 is\non fire")

        monkeypatch.setattr(Session, "run", broken)
        path = make_onnx(["Softmax", "Conv"])
        assert failing(run, 1, "profile", path) == "core 3 is on fire"
        code, _, err = run("profile", path, "--debug")
        assert code == 1 and "Traceback" in err and "RunError" in err

    def test_surprises_are_short(self, run, lenet: Path, monkeypatch) -> None:
        from tvm_npu.cli import onnx_file

        def broken(path: Path, weights_seed: int | None) -> None:
            raise RuntimeError("x" * 5000)

        monkeypatch.setattr(onnx_file, "read_onnx", broken)
        message = failing(run, 1, "profile", lenet)
        assert message.startswith("RuntimeError: xxx") and "--debug" in message
        assert len(message) < 400


def test_without_tvm(lenet: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['tvm'] = None\n"
        "from tvm_npu.cli import main\n"
        f"assert main(['machines']) == 0\n"
        f"sys.exit(main(['profile', {str(lenet)!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "tvm-npu profile: error: this needs tvm: in the checkout, pip install '.[relay]' "
        "(TVM 0.19) or '.[relax]' (TVM 0.26 and later)"
    )
