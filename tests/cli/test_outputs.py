"""Files that commands write are none that they read."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

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
