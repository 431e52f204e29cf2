"""Reads the command line, runs one command, turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import errno
import gc
import importlib
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn

from tvm_npu import __version__
from tvm_npu.cli.errors import UsageError
from tvm_npu.cli.interrupts import Interrupts
from tvm_npu.cli.shown import one_line
from tvm_npu.cli.streams import drop, open_streams
from tvm_npu.cli.terminal import open_terminal
from tvm_npu.sim.texts import did_you_mean

OK, FAILED, USAGE = 0, 1, 2
LONGEST_SURPRISE = 300
"""Characters of an error that nobody meant a user to read."""

OBJECTS_TO_COLLECT = 100_000
"""New objects after which Python looks for cycles, instead of its 700 (2,000 from 3.13 on): imports
make a million that stay, and looking through them was a tenth of a profile's time."""

COMMANDS = {
    "profile": (
        "profile_command",
        "run a model on the simulated NPU and show what every layer costs",
    ),
    "accuracy": (
        "accuracy_command",
        "count right answers on labelled images beside float, and find the layer to blame",
    ),
    "compare": (
        "compare_command",
        "run a model on stock TVM, onnxruntime and simulated NPUs, side by side",
    ),
    "verify": (
        "verify_command",
        "hold programs to the reference and show the first instruction that goes wrong",
    ),
    "compile": ("compile_command", "compile a model's NPU regions to program files"),
    "tune": (
        "tune_command",
        "try plans of a model's layers on the simulator; the log is for --planner learned",
    ),
    "sweep": ("sweep_command", "run models on many machines and show which are worth building"),
    "disasm": ("disasm_command", "show a compiled program as assembly"),
    "ir": ("ir_command", "write the execution plan of a convolution as text"),
    "run-ir": ("run_ir_command", "run an execution plan that was written as text"),
    "run-elf": ("elf_command", "run a bare-metal RV32IM program on a simulated core"),
    "check": ("check_command", "say whether files are what they are called, running nothing"),
    "doctor": (
        "doctor_command",
        "say which TVM is here, what is wrong with this environment, and what to do",
    ),
    "warmup": ("warmup_command", "make the machine code of planners and simulators now"),
    "machines": ("machines_command", "list the built-in machines, or show one"),
    "planners": ("planners_command", "list the planners"),
    "pipeline": ("pipeline_command", "run a model as a pipeline over unequal CPU clusters"),
    "platform": (
        "platform_command",
        "list or show platforms of pipelines, or detect this machine's clusters",
    ),
}
"""(module, what it does in a line) by name. A module is imported when its command is asked for."""
EPILOG = """\
exit codes: 0 done; 1 the job failed (a file, model, machine or data that does not work);
2 the command line is wrong; 130 interrupted

examples:
  tvm-npu profile lenet.onnx
  tvm-npu profile resnet.onnx --calibration images/ --precision int8 --json resnet.json
  tvm-npu compare resnet.onnx --images cifar.npz --machine nmp-4x8 snowflake-1cc
  tvm-npu accuracy mnist.onnx --images digits.npz --precision int8
  tvm-npu compile lenet.onnx -o programs/
  tvm-npu disasm programs/tvmgen_default_npu_main_0.npu --layer conv1
  tvm-npu ir lenet.onnx --machine setup-a --layer conv1
  tvm-npu doctor
  tvm-npu machines nmp-4x8
  tvm-npu platform detect --out here.toml
  tvm-npu pipeline squeezenet.onnx --platform here.toml
"""


def run(argv: Sequence[str] | None, interrupts: Interrupts) -> int:
    """Runs ``argv`` (default: the process's arguments); returns the exit code."""
    open_streams()
    with _collecting_seldom():
        return _run(list(sys.argv[1:] if argv is None else argv), interrupts)


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS_TO_COLLECT, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _run(given: Sequence[str], interrupts: Interrupts) -> int:
    parser = make_parser(given)
    try:
        args = parser.parse_args(given)
    except SystemExit as stop:  # argparse: after --help, --version or a usage error
        return _flushed("tvm-npu", int(stop.code or OK))
    except OSError as error:  # from --help
        _flush()
        return _unwritten("tvm-npu", error)
    interrupts.command = args.command
    terminal = open_terminal()
    debug = getattr(args, "debug", False)
    try:
        with terminal.warnings_as_notes(everybody=debug):
            code: int = command_module(args.command).run(args, terminal)
        code = _flushed(f"tvm-npu {args.command}", code)
        return interrupts.say() if interrupts.seen else code
    except UsageError as error:
        print(f"tvm-npu {args.command}: error: {one_line(str(error))}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return interrupts.say()
    except Exception as error:
        if interrupts.seen:  # a library has made something else of it
            return interrupts.say()
        if debug:
            traceback.print_exc()
        print(f"tvm-npu {args.command}: error: {explained(error)}", file=sys.stderr)
        _flush()
        return FAILED


def _flushed(command: str, code: int) -> int:
    """``code``, or that of a failure when the output has nowhere to go."""
    error = _flush()
    return code if error is None else _unwritten(command, error)


def _unwritten(command: str, error: OSError) -> int:
    print(f"{command}: error: {explained(error)}", file=sys.stderr)
    return FAILED


def _flush() -> OSError | None:
    """What kept the output from being written; the rest is dropped, not tried again at exit."""
    try:
        sys.stdout.flush()
        return None
    except OSError as error:
        drop(sys.stdout.fileno())
        return error


def explained(error: Exception) -> str:
    """One line about an error. The project's own say it themselves."""
    text = one_line(str(error))
    modules = {base.__module__.split(".")[0] for base in type(error).__mro__}
    if "tvm_npu" in modules:
        return text
    if isinstance(error, ModuleNotFoundError) and error.name in ("tvm", "onnx"):
        return (
            f"this needs {error.name}: in the checkout, pip install '.[relay]' (TVM 0.19) or "
            "'.[relax]' (TVM 0.26 and later)"
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"no space left for {error.filename or 'the output'}"
    if isinstance(error, MemoryError):
        return f"out of memory {text}".rstrip()
    if len(text) > LONGEST_SURPRISE:
        text = text[: LONGEST_SURPRISE - 1] + "…"
    return f"{type(error).__name__}: {text} (unexpected; --debug shows where)"


def command_module(name: str) -> ModuleType:
    return importlib.import_module(f"tvm_npu.cli.{COMMANDS[name][0]}")


class Parser(argparse.ArgumentParser):
    """Its messages name the option or choice that the user may have meant. Help that cannot be
    written is an OSError; argparse would drop it."""

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        unknown = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        near = ""
        if choice is not None:
            near = did_you_mean(choice[1], re.findall(r"[\w.-]+", choice[2]))
        elif unknown is not None:
            near = did_you_mean(unknown[1], self.options())
        super().error(f"{message}{near}")

    def options(self) -> list[str]:
        """Names of its options and of those of its commands."""
        found: list[str] = []
        for action in self._actions:
            found += action.option_strings
            if isinstance(action.choices, dict):
                for command in action.choices.values():
                    found += command.options()
        return found


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """For the command line ``argv``: only commands that it names have arguments."""
    parser = Parser(
        prog="tvm-npu",
        description="CNNs on a simulated NPU, by way of TVM.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tvm-npu {__version__}")
    common = Parser(add_help=False)
    for place in (parser, common):
        place.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS,
            help="show tracebacks and the warnings of libraries",
        )  # fmt: skip
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", title="commands"
    )
    plain = argparse.RawDescriptionHelpFormatter
    for name, (_, summary) in COMMANDS.items():
        if name not in argv:
            commands.add_parser(name, help=summary)
            continue
        module = command_module(name)
        command = commands.add_parser(
            name, help=summary, description=module.DESCRIPTION, epilog=module.EXAMPLES,
            parents=[common], formatter_class=plain,
        )  # fmt: skip
        module.add_arguments(command)
    return parser
