"""TVM's command line driver with the NPU in it: ``python -m tvm_npu.tvmc``.

    python -m tvm_npu.tvmc compile --target="npu -machine=nmp-4x8, llvm" model.onnx -o model.tar
    python -m tvm_npu.tvmc run --inputs input.npz model.tar

Options of the npu part: ``-machine`` (name or file), ``-precision``, ``-planner``,
``-calibration`` (an .npz file), ``-percentile``, ``-seed``, ``-tuning_log`` (a file of
``tvm-npu tune``), ``-images`` (together or apart), ``-offload`` (paying or all),
``-quantization`` (plain, equalised or bias-corrected), ``-int16_layers`` (names with commas between
them), ``-max_loss`` (for ``-precision=auto``).
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tvm_npu.ending import end_process
from tvm_npu.errors import NpuError, TargetError

os.environ.setdefault("TOPHUB_LOCATION", "NONE")

OPTIONS: dict[str, Callable[[str], Any]] = {
    "machine": str,
    "precision": str,
    "planner": str,
    "calibration": str,
    "percentile": float,
    "seed": int,
    "tuning_log": str,
    "images": str,
    "offload": str,
    "quantization": str,
    "int16_layers": lambda text: tuple(text.split(",")),
    "max_loss": float,
}


def pass_pipeline(
    preset: Mapping[str, str],
    mod: Any,
    params: Any,
    mod_name: str = "default",
    **given: str,
) -> Any:
    """What tvmc calls for the codegen "npu": `partition_for_npu` with options as texts.

    ``preset`` are options that tvmc's own target parser cannot read (paths). Raises TVMCException.
    """
    from tvm.driver.tvmc import TVMCException

    from tvm_npu.relay import explain, partition_for_npu

    try:
        options = parsed_options({**preset, **given})
        machine = options.pop("machine", "nmp-4x8")
        result = partition_for_npu(mod, params, target=machine, mod_name=mod_name, **options)
    except NpuError as error:
        raise TVMCException(str(error)) from error
    logging.getLogger("TVMC").info("%s", explain(result))
    return result


def parsed_options(texts: Mapping[str, str]) -> dict[str, Any]:
    """Option values by name. Raises TargetError for an unknown name or a bad number."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        if name not in OPTIONS:
            known = ", ".join(f"-{option}" for option in OPTIONS)
            raise TargetError(f"target npu has no option -{name}; options: {known}")
        try:
            values[name] = OPTIONS[name](text)
        except ValueError as error:
            raise TargetError(f"target npu: -{name}={text} is no number") from error
    return values


def take_npu_options(target: str) -> tuple[str, dict[str, str]]:
    """A tvmc target without the npu part's options, and those options.

    before: ``npu -machine=my.toml -planner=tso, llvm``
    after:  ``npu, llvm`` and ``{"machine": "my.toml", "planner": "tso"}``

    An npu part in last place gets ``llvm`` behind it. Raises TargetError for words that are not
    ``-name=value``.
    """
    parts = _split_outside_quotes(target)
    found: dict[str, str] = {}
    for index, part in enumerate(parts):
        if part.split()[:1] != ["npu"]:
            continue
        try:
            words = shlex.split(part)
        except ValueError as error:
            raise TargetError(f"target npu: {part.strip()!r}: {error}") from error
        for word in words[1:]:
            name, equals, value = word.lstrip("-").partition("=")
            if not word.startswith("-") or not equals or not name:
                raise TargetError(f"target npu: {word!r} is not of the form -name=value")
            found[name] = value
        parts[index] = "npu"
    if parts[-1] == "npu":
        parts.append(" llvm")
    return ",".join(parts), found


def _split_outside_quotes(text: str) -> list[str]:
    parts, quote = [""], ""
    for letter in text:
        if letter == "," and not quote:
            parts.append("")
            continue
        if letter in "'\"":
            quote = "" if letter == quote else quote or letter
        parts[-1] += letter
    return parts


def register(preset: Mapping[str, str] | None = None) -> None:
    """Adds "npu" to tvmc's composite targets; ``preset`` options hold for every compilation."""
    from tvm.driver.tvmc.composite_target import REGISTERED_CODEGEN

    REGISTERED_CODEGEN["npu"] = {
        "config_key": None,
        "pass_default": False,
        "default_target": None,
        "pass_pipeline": partial(pass_pipeline, dict(preset or {})),
    }


def _use_own_onnx_reader() -> None:
    """tvmc reads ONNX through `tvm_npu.relay.frontend.from_onnx`."""
    from tvm.driver.tvmc import frontends

    from tvm_npu.relay.frontend import from_onnx

    class OnnxFrontend(frontends.OnnxFrontend):  # type: ignore[misc]
        def load(self, path: str, shape_dict: Any = None, **options: Any) -> Any:
            return from_onnx(path, shape_dict, **options)

    frontends.ALL_FRONTENDS[:] = [
        OnnxFrontend if frontend is frontends.OnnxFrontend else frontend
        for frontend in frontends.ALL_FRONTENDS
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs tvmc; returns its exit code (4: an error with a message)."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    preset: dict[str, str] = {}
    try:
        for index, word in enumerate(argv):
            flag, equals, value = word.partition("=")
            if flag == "--target" and equals:
                target, preset = take_npu_options(value)
                argv[index] = f"--target={target}"
            elif flag == "--target" and index + 1 < len(argv):
                argv[index + 1], preset = take_npu_options(argv[index + 1])
        parsed_options(preset)
    except TargetError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 4
    from tvm.driver.tvmc import main as tvmc_main

    import tvm_npu.relay
    import tvm_npu.runtime  # noqa: F401

    register(preset)
    _use_own_onnx_reader()
    try:
        return int(tvmc_main._main(argv) or 0)
    except NpuError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 4


if __name__ == "__main__":
    end_process(main())
