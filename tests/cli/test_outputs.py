"""Files that commands write are none that they read."""

from __future__ import annotations

import argparse
import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from tvm_npu.cli.errors import CliError
from tvm_npu.cli.files import check_outputs
from tvm_npu.sim.machine_file import load_machine, machine_toml

ELF = Path(__file__).parents[1] / "sim" / "nmp" / "data" / "hello.elf"


def test_outputs_and_inputs(tmp_path: Path) -> None:
    one, two, new = tmp_path / "one", tmp_path / "two", tmp_path / "new"
    one.write_text("1")
    two.write_text("2")
    os.link(one, tmp_path / "hard")
    (tmp_path / "soft").symlink_to(one)

    def check(json: object, **others: object) -> None:
        check_outputs(argparse.Namespace(json=json, csv=None, **others), "json", "csv")

    check(one, files=[two, new], machine="nmp-4x8")
    check(None, files=[one])
    check(one, layer=str(one))  # no file
    check(Path("/dev/null"), files=[Path("/dev/null")])
    for path in (one, tmp_path / "hard", tmp_path / "soft", tmp_path / "x" / ".." / "one"):
        (tmp_path / "x").mkdir(exist_ok=True)
        for inputs in ({"files": [two, one]}, {"model": one}, {"machine": str(one)}):
            with pytest.raises(CliError, match="another argument names the same file; give --json"):
                check(path, **inputs)
    with pytest.raises(CliError, match=r"cannot write '.*new': .* give --json one of its own"):
        check(new, model=new)
    with pytest.raises(CliError, match="there is no folder"):
        check(tmp_path / "no" / "x")
    with pytest.raises(CliError, match="the same file; give --json"):
        check_outputs(argparse.Namespace(json=new, csv=new), "json", "csv")


@pytest.mark.parametrize(
    "command",
    ["check FILE --json FILE", "run-elf FILE --json FILE", "run-elf --machine FILE x --json FILE",
     "machines FILE --json FILE", "platform show FILE --json FILE", "run-ir FILE --program FILE",
     "sweep FILE --csv FILE", "profile FILE --html FILE", "tune FILE --log FILE",
     "profile x --html y --compare FILE --json FILE", "tune x --log FILE --json FILE",
     "profile x --machine FILE --trace FILE", "compare x --machine nmp-4x8 FILE --json FILE",
     "accuracy x --images FILE --json FILE", "ir FILE --out FILE",
     "pipeline FILE --platform shisha-c1 --trace FILE",
     "verify x --program FILE --json FILE"],
)  # fmt: skip
def test_commands_do_not_write_what_they_read(run, tmp_path: Path, command: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "own"
    path.write_bytes(b"precious")
    arguments = [str(path) if word == "FILE" else word for word in command.split()]
    code, _, err = run(*arguments)
    assert code == 1 and "another argument names the same file" in err
    assert path.read_bytes() == b"precious"


def test_names_of_machines_are_no_files(run, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """A result may be called as a machine is, as long as there is no such file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.toml").write_text(machine_toml(load_machine("nmp-4x8").model_dump()))
    assert run("machines", "m.toml", "--json", "x.json")[0] == 0
    assert run("machines", "m.toml", "--json", "m.toml")[0] == 1


@pytest.fixture
def read(tmp_path: Path) -> Path:
    """A folder with what commands read by way of something else: every ``precious`` file of it."""
    tensor = TensorProto(name="w", dims=[2], data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,)) for name in "xy")
    constant = helper.make_node("Constant", [], ["w"], value=tensor)
    graph = helper.make_graph([constant, helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y])
    (tmp_path / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    for folder in ("images", "s.sweep", "other.sweep", "m.tuning/0-relay", "log/1-relax/deep"):
        (tmp_path / folder).mkdir(parents=True)
    precious = (
        "w.bin", "images/0.npy", "images/1.JPG", "d.npz", "labels.csv", "machine.toml", "base.json",
        "s.sweep/results.sqlite", "s.sweep/1.model", "other.sweep/results.sqlite-wal",
        "m.tuning/0-relay/autotvm.log", "log/1-relax/deep/any.json",
    )  # fmt: skip
    for name in precious:
        (tmp_path / name).write_bytes(b"precious")
    (tmp_path / "hard.json").hardlink_to(tmp_path / "images" / "0.npy")
    for stem, images in (("s", "images"), ("t", "d.npz")):
        (tmp_path / f"{stem}.toml").write_text(
            f"""models = ["m.onnx"]
            machine = {{files = ["machine.toml"], base = "base.json"}}
            accuracy = {{"m.onnx" = {{images = "{images}", labels = "labels.csv"}}}}
            """
        )
    return tmp_path


@pytest.mark.parametrize(
    "command",
    ["profile m.onnx --calibration images --json images/0.npy",
     "profile m.onnx --calibration images --json images/new/../1.JPG",
     "profile m.onnx --calibration images --json hard.json",
     "accuracy m.onnx --images images --json images/0.npy",
     "pipeline m.onnx --platform shisha-c1 --input images --json images/0.npy",
     "profile m.onnx --json w.bin", "tune m.onnx --log w.bin", "verify m.onnx --json w.bin",
     "sweep s.toml --csv images/0.npy", "sweep t.toml --csv d.npz", "sweep s.toml --json m.onnx",
     "sweep s.toml --json w.bin", "sweep s.toml --html labels.csv",
     "sweep s.toml --csv machine.toml", "sweep s.toml --csv base.json",
     "sweep s.toml --csv s.sweep/results.sqlite", "sweep s.toml --csv s.sweep/1.model",
     "sweep s.toml --store other.sweep --csv other.sweep/results.sqlite-wal",
     "check s.toml --json machine.toml",
     "compare m.onnx --trials 1 --json m.tuning/0-relay/autotvm.log",
     "compare m.onnx --trials 1 --tuning-log log --csv log/1-relax/deep/any.json"],
)  # fmt: skip
def test_commands_do_not_write_what_is_read_for_an_argument(  # type: ignore[no-untyped-def]
    run, read: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(read)
    (read / "images" / "new").mkdir()
    files = {path: path.read_bytes() for path in read.rglob("*") if path.is_file()}
    code, _, err = run(*command.split())
    assert code == 1 and "; give --" in err and ", which another argument names" in err
    assert {path: path.read_bytes() for path in read.rglob("*") if path.is_file()} == files


def test_results_of_before_in_folders_that_are_read_are_replaced(
    read: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(read)
    arguments = {"calibration": Path("images"), "spec": Path("s.toml")}
    for name in ("images/r.json", "s.sweep/points.csv"):
        for content in ("first", "second"):
            check_outputs(argparse.Namespace(json=Path(name), **arguments), "json")
            Path(name).write_text(content)


def test_a_sweep_that_names_itself(read: Path) -> None:
    (read / "u.toml").write_text('models = ["u.toml"]\nmachine = {files = ["u.toml"]}\n')
    arguments = argparse.Namespace(json=read / "labels.csv", spec=read / "u.toml")
    check_outputs(arguments, "json")


LONG = "a" * 300


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that nobody may look into, not even a superuser."""
    folder = tmp_path / "locked"
    folder.mkdir()

    def guarded(function: Callable[..., object], itself: bool) -> Callable[..., object]:
        def call(path: object, *rest: object, **named: object) -> object:
            if not isinstance(path, int) and str(folder) in os.path.abspath(os.fsdecode(path)):  # type: ignore[arg-type]
                if itself or os.path.abspath(os.fsdecode(path)) != str(folder):  # type: ignore[arg-type]
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return function(path, *rest, **named)

        return call

    for name, itself in (("stat", False), ("lstat", False), ("open", False), ("listdir", True)):
        monkeypatch.setattr(os, name, guarded(getattr(os, name), itself))
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: str(folder) not in str(path) and access(path, mode)
    )
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("check ELF --json locked/x.json", "cannot write 'locked/x.json': Permission denied"),
        ("check ELF --json LONG", "cannot write 'a+': File name too long"),
        ("check ELF --json locked", "cannot write 'locked': it is a folder"),
        ("profile LENET --calibration locked", "cannot read 'locked': Permission denied"),
        ("profile LENET --calibration locked/x", "cannot read 'locked/x': Permission denied"),
        ("profile LENET --calibration LONG", "cannot read 'a+': File name too long"),
        ("accuracy LENET --images locked/x.npz", "cannot read 'locked/x.npz': Permission denied"),
        ("accuracy LENET --images LONG.npz", r"cannot read 'a+\.npz': File name too long"),
        ("pipeline LENET --platform shisha-c1 --input locked/x", "cannot read 'locked/x': Perm"),
        ("pipeline LENET --platform locked/p", "unknown platform 'locked/p'"),
        ("pipeline LENET --platform LONG", "unknown platform 'a+'"),
        ("compile LENET -o locked/out", "cannot write into 'locked/out': Permission denied"),
        ("compile LENET -o locked", "cannot write into 'locked': permission denied in '.*locked'"),
        ("compile LENET -o LONG", "cannot write into 'a+': File name too long"),
        ("compile LENET -o file/out", "cannot write into 'file/out': '.*file' is no folder"),
        ("tune LENET --log locked/x.jsonl", "cannot write 'locked/x.jsonl': Permission denied"),
        ("tune LENET --log LONG", "cannot write 'a+': File name too long"),
        ("sweep locked/s.toml", "cannot read sweep 'locked/s.toml': Permission denied; a sweep is"),
        ("sweep LONG", "cannot read sweep 'a+': File name too long; a sweep is"),
        ("sweep x --html LONG.html", r"cannot write 'a+\.html': File name too long"),
        ("sweep x --html x.profiles --profiles 1", "'x.profiles' would be the folder of the prof"),
        ("sweep x --html file.html --profiles 1", "into 'file.profiles': '.*file.profiles' is no"),
    ],
)
def test_what_may_not_be_looked_at_is_named(  # type: ignore[no-untyped-def]
    run, locked: Path, lenet: Path, command: str, message: str
) -> None:
    """Before the work."""
    for name in ("file", "file.profiles"):
        Path(name).touch()
    names = {"ELF": str(ELF), "LENET": str(lenet)}
    arguments = [names.get(word, word.replace("LONG", LONG)) for word in command.split()]
    code, out, err = run(*arguments)
    assert (code, out) == (1, "") and re.search(f"error: .*{message}", err)
    assert "unexpected" not in err and err.count("\n") == 1
