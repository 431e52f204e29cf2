"""scripts/demo: mistakes in its arguments are one line each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)

from tvm_npu import demo  # noqa: E402

pytestmark = pytest.mark.relay


def test_digits_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "demo.json"
    assert demo.main(["--images", "3", "--precision", "int8", "--json", str(target)]) == 0
    found = json.loads(target.read_text())
    assert (found["digits"], found["precision"], found["right_npu"]) == (3, "int8", 3)
    out = capsys.readouterr().out
    assert f"{found['cycles_per_digit']:,.0f} cycles a digit" in out
    assert "TVM with the NPU: 3 of 3 digits right, 100.0%" in out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--machine", "nmp-9x9"], "unknown machine 'nmp-9x9': neither a file nor one of nmp-4x8"),
        (["--machine", "no/such.toml"], "cannot read machine file 'no/such.toml'"),
        (["--json", "no/such/demo.json"], "cannot write 'no/such/demo.json': there is no folder"),
    ],
)
def test_mistakes(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(arguments) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"scripts/demo: error: {message}") and err.count("\n") == 1


def test_no_images_are_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        demo.main(["--images", "0"])
    assert stop.value.code == 2
    assert "'0' is not an integer of at least 1" in capsys.readouterr().err
