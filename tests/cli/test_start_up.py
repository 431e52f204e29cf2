"""What commands load, and how often they collect garbage: that decides the times that
scripts/bench_startup tells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.codegen.tiles.test_ir import TEXT
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
HEAVY = ("tvm", "numba", "llvmlite", "scipy", "onnx", "xgboost", "sklearn", "rich.progress", "PIL")
ELF = ROOT / "tests" / "sim" / "nmp" / "data" / "checksum.elf"
LIGHT = ["", "--help", "--version", "machines", "machines nmp-4x8", "planners", "nonsense"]
COMMANDS = (
    "profile", "warmup", "compile", "tune", "ir", "run-ir", "run-elf", "pipeline", "platform",
    "disasm", "doctor", "compare",
)  # fmt: skip


def loaded_by(names: tuple[str, ...], *commands: str) -> dict[str, set[str]]:
    """Which of the modules ``names`` are loaded after each ``tvm-npu`` with such arguments, one
    after the other in a process; those that load none are left out."""
    program = (
        "import sys\n"
        "from tvm_npu.cli import main\n"
        "for command in sys.argv[1:]:\n"
        "    main(command.split())\n"
        f"    print('loaded', *(name for name in {names!r} if sys.modules.get(name)))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *commands],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = [line.split()[1:] for line in result.stdout.splitlines() if line[:6] == "loaded"]
    return {command: set(found) for command, found in zip(commands, lines, strict=True) if found}


def test_lists_and_help_load_no_compiler() -> None:
    assert not loaded_by((*HEAVY, "numpy"), *LIGHT)


def test_the_package_is_the_command_line() -> None:
    """`python -m tvm_npu`, as `python -m tvm_npu.cli`."""
    for arguments in (["--help"], ["machines", "nmp-4x8"], ["profile"]):
        told = [
            subprocess.run(
                [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True
            )
            for module in ("tvm_npu", "tvm_npu.cli")
        ]
        first, second = ((one.returncode, one.stdout, one.stderr) for one in told)
        assert first == second and (first[1] or first[2].startswith("usage: tvm-npu profile "))
        assert first[0] == (2 if arguments == ["profile"] else 0)


def test_a_mistyped_argument_is_told_at_once() -> None:
    assert not loaded_by(HEAVY, *(f"{command} --mistyped" for command in COMMANDS))


def test_the_list_of_platforms_loads_no_compiler() -> None:
    assert not loaded_by(HEAVY, "platform list")


@pytest.mark.relay
def test_disassembling_loads_no_compiler(lenet_program: Path) -> None:
    assert not loaded_by(HEAVY, f"disasm {lenet_program}")


def test_what_has_no_model_in_it_runs_without_tvm(tmp_path: Path) -> None:
    """On the simulators, machine code and all."""
    text = tmp_path / "layer.ir"
    text.write_text(TEXT)
    commands = (f"run-ir {text}", f"run-elf {ELF}", "warmup setup-a --planner naive")
    assert loaded_by(("tvm", "numba"), *commands) == dict.fromkeys(commands, {"numba"})


@pytest.mark.relay
@pytest.mark.parametrize("machine", ["nmp-4x8", "snowflake-1cc"])
def test_profiling_loads_only_what_it_uses(machine: str) -> None:
    """TVM imports xgboost, and with it scikit-learn, where they are installed."""
    model = ROOT / "tvm_npu" / "models" / "data" / "digits_lenet.onnx"
    unused = (
        "xgboost", "sklearn", "scipy.linalg", "numba.np.arraymath", "rich.progress", "PIL",
        "matplotlib",
    )  # fmt: skip
    names = ("tvm", "numba", *unused)
    command = f"profile {model} --machine {machine} --no-timing"
    loaded_by(names, command)  # makes machine code that is missing
    assert loaded_by(names, command) == {command: {"tvm", "numba"}}


@pytest.mark.relay
def test_a_command_seldom_looks_for_cycles_and_leaves_the_collector_as_it_was() -> None:
    model = ROOT / "tvm_npu" / "models" / "data" / "digits_lenet.onnx"
    program = (
        "import gc\n"
        "from tvm_npu.cli import main\n"
        "gc.set_threshold(500, 9, 8)\n"
        "before = sum(level['collections'] for level in gc.get_stats())\n"
        f"assert main(['profile', {str(model)!r}, '--no-timing']) == 0\n"
        "assert gc.get_threshold() == (500, 9, 8)\n"
        "print(sum(level['collections'] for level in gc.get_stats()) - before)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout.splitlines()[-1]) < 100


def test_the_check_sees_what_is_loaded() -> None:
    assert loaded_by(("rich.console",), "machines") == {"machines": {"rich.console"}}
