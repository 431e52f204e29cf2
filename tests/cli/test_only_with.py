"""Options that would change nothing are refused, before the work, with what they belong to."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_cli_errors import failing
from tvm_npu.cli.engine_arguments import add_engine_arguments, engine_of
from tvm_npu.cli.errors import UsageError
from tvm_npu.cli.only_with import given, not_with, only_with

MODEL = "MODEL"
"""In the place of which stands a model's path."""


def test_what_counts_as_given() -> None:
    args = argparse.Namespace(a_b=None, c=False, d=[], e=0, f="x")
    assert [given(args, option) for option in ("--a-b", "--c", "--d", "--e", "--f")] == [
        False, False, False, True, True,
    ]  # fmt: skip
    only_with(args, ["--a-b", "--e"], "--f", args.f, "which it is about")
    with pytest.raises(UsageError, match="^argument --e: only with --c, which it is about$"):
        only_with(args, ["--a-b", "--e"], "--c", args.c, "which it is about")
    not_with(args, ["--a-b", "--d"], "--f", "which it is not")
    with pytest.raises(UsageError, match="^argument --e: not allowed with --f, which it is not$"):
        not_with(args, ["--e"], "--f", "which it is not")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("profile MODEL --trace-layers x:y", "--trace-layers: only with --trace, "),
        ("profile MODEL --overlay-value q_point", "--overlay-value: only with --overlay FILE.json"),
        (
            "profile MODEL --overlay x.onnx --overlay-value q_point",
            "--overlay-value: only with --overlay FILE.json",
        ),
        ("profile MODEL --compare x.json", "--compare: only with --html, "),
        ("profile MODEL --preset imagenet", "--preset: only with --calibration, "),
        ("compile MODEL -o x --fit crop", "--fit: only with --calibration, "),
        ("tune MODEL --log x.jsonl --bgr", "--bgr: only with --calibration, "),
        ("verify MODEL --inputs x.npz --preset imagenet", "--preset: only with --calibration, "),
        ("ir MODEL --machine setup-a --for setup-b", "--for: only with an NMP as --machine; "),
        ("compare MODEL --limit 3", "--limit: only with --images, "),
        ("compare MODEL --layout NHWC", "--layout: only with --images, "),
        ("compare MODEL --bgr", "--bgr: only with --images or --calibration, "),
        ("compare MODEL --tuning-log x", "--tuning-log: only with --trials, "),
        ("compare MODEL --runner npu --trials 5", "--trials: only with a runner that tunes, "),
        ("pipeline MODEL --platform shisha-c1 --frames 9", "--frames: only with --simulate, "),
        ("pipeline MODEL --platform shisha-c1 --timeout 9", "--timeout: only with real places, "),
        ("pipeline MODEL --platform shisha-c1 --noise 0", "--noise: only with --simulate, "),
        ("sweep x.toml --profiles 2", "--profiles: only with --html, "),
        ("sweep x.toml --budget cycles=nan", "--budget: 'cycles=nan' is not NAME=MOST, "),
    ],
)
def test_options_that_would_change_nothing(
    run: Any, lenet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str,
    message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    words = [str(lenet) if word == MODEL else word for word in command.split()]
    assert failing(run, 2, *words).startswith(f"argument {message}")


@pytest.mark.parametrize("options", ["--workers 2", "--engine joblib"])
def test_a_scheduler_has_workers_of_its_own(options: str) -> None:
    parser = argparse.ArgumentParser()
    add_engine_arguments(parser)
    args = parser.parse_args(["--scheduler", "tcp://127.0.0.1:1", *options.split()])
    text = f"^argument {options.split()[0]}: not allowed with --scheduler, "
    with pytest.raises(UsageError, match=text):
        engine_of(args, "sweeps")


@pytest.mark.relay
def test_two_programs_for_one_region(run: Any, lenet: Path, lenet_program: Path) -> None:
    text = failing(run, 1, "verify", lenet, "--program", lenet_program, "--program", lenet_program)
    assert " are both for region " in text and text.endswith("give one --program for it")


@pytest.mark.relay
def test_fewer_samples_than_asked_for_are_told(run: Any, lenet: Path, digits_npz: Path) -> None:
    code, _, err = run("verify", lenet, "--inputs", digits_npz, "--samples", 5000)
    assert code == 0 and f"note: --samples 5000: '{digits_npz}' holds " in err
    assert "all of which were run" in err
