"""NPU targets: tags ``npu/<machine>`` and targets for machine files of the user's own.

A target is TVM's CPU target with ``device = npu`` and ``model`` naming the machine, so that what
stays on the CPU is compiled as ever. Options stand behind the machine, as in
``nmp-4x8?precision=int8&planner=exact``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from tvm_npu.errors import TargetError
from tvm_npu.options import NpuOptions, make_options
from tvm_npu.processors import check_features, check_processor, unusable_features
from tvm_npu.runtime.lean_tvm import import_tvm
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_file import machine_names

TAG_PREFIX = "npu/"
OPTION_NAMES = (
    "precision", "planner", "percentile", "seed", "tuning_log", "images", "offload", "quantization",
    "int16_layers", "max_loss",
)  # fmt: skip


def register_tags() -> None:
    """Makes ``tvm.target.Target("npu/<machine>")`` known for every built-in machine."""
    import tvm

    known = {str(name) for name in tvm.target.tag.list_tags() or ()}
    for name in machine_names():
        if TAG_PREFIX + name not in known:
            tvm.target.tag.register_tag(TAG_PREFIX + name, _config(name, {}))


def make_target(machine: str | Path, **options: Any) -> Any:
    """A `tvm.target.Target` for a built-in machine or a machine file.

    Options: ``precision``, ``planner``, ``percentile``, ``seed``, ``tuning_log`` (its path is made
    absolute), ``images``, ``offload``, ``quantization``, ``int16_layers`` (names), ``max_loss``;
    further keyword arguments (for example
    ``mcpu``, ``mtriple``) go to TVM's CPU target.
    Raises TargetError for an unknown machine, an option out of its range, an ``mcpu`` that is no
    processor of the architecture of ``mtriple``, or without one of this machine's, or an ``mattr``
    that LLVM cannot read.
    """
    tvm = import_tvm()

    own = {key: value for key, value in options.items() if key in OPTION_NAMES}
    cpu = {key.replace("_", "-"): options[key] for key in options if key not in OPTION_NAMES}
    made = make_options(machine, **own)
    if made.tuning_log is not None:
        own["tuning_log"] = made.tuning_log
    name = str(machine)
    if name not in machine_names():
        name = str(Path(machine).resolve())
    mcpu, mtriple = cpu.get("mcpu"), cpu.get("mtriple", "")
    if "mattr" in cpu:
        check_features(cpu["mattr"])
    if isinstance(mcpu, str) and isinstance(mtriple, str):
        check_processor(mcpu, mtriple)
        features = [*unusable_features(mcpu, mtriple), *cpu.get("mattr", ())]
        if features:
            cpu["mattr"] = features
    try:
        return tvm.target.Target({**_config(name, own), **cpu})
    except (ValueError, TypeError, tvm.error.TVMError) as error:
        detail = str(error).strip().splitlines()[-1]
        raise TargetError(f"target for {name!r} with {cpu}: {detail}") from error


def _config(machine: str, options: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {key: value for key, value in options.items() if value is not None}
    model = quote(machine, safe="/.-_")
    if chosen:
        model += "?" + urlencode(chosen, doseq=True)
    return {"kind": "llvm", "keys": ["npu", "cpu"], "device": "npu", "model": model}


def options_from_target(target: Any, **overrides: Any) -> NpuOptions:
    """Options for a tag, a machine's name or file, a Machine, or a Target that `make_target`
    made; ``overrides`` that are not None win.

    Raises TargetError for a target without an NPU.
    """
    chosen: dict[str, Any] = {}
    machine: Any = target
    if isinstance(target, str) and target.startswith(TAG_PREFIX):
        machine = target[len(TAG_PREFIX) :]
    elif not isinstance(target, str | Path | MachineDescription):
        machine, chosen = _read_target(target)
    chosen.update({key: value for key, value in overrides.items() if value is not None})
    return make_options(machine, **chosen)


def build_target(target: Any) -> Any:
    """What TVM's build gets for what `options_from_target` takes: tags and Targets as they are; a
    machine alone, or no target, says nothing about the CPU."""
    if isinstance(target, str) and target.startswith(TAG_PREFIX):
        return target
    plain = target is None or isinstance(target, str | Path | MachineDescription)
    return "llvm" if plain else target


def _read_target(target: Any) -> tuple[str, dict[str, Any]]:
    import tvm

    if not isinstance(target, tvm.target.Target):
        raise TargetError(
            f"target {target!r} is a {type(target).__name__}; expected 'npu/<machine>', a machine "
            "or a tvm Target"
        )
    config = {str(key): value for key, value in target.export().items()}
    if str(config.get("device", "")) != "npu" or "model" not in config:
        raise TargetError(f"target {str(target)!r} names no NPU: expected device=npu and a model")
    machine, _, query = str(config["model"]).partition("?")
    chosen: dict[str, Any] = {}
    for key, value in parse_qsl(query):
        if key == "int16_layers":
            chosen[key] = (*chosen.get(key, ()), value)
        else:
            chosen[key] = {"percentile": float, "seed": int, "max_loss": float}.get(key, str)(value)
    cpu = {
        key: _plain(value)
        for key, value in config.items()
        if key not in ("device", "model", "keys", "tag", "host")
    }
    chosen["cpu_target"] = json.dumps(cpu, sort_keys=True)
    return unquote(machine), chosen


def _plain(value: Any) -> Any:
    """A TVM container, string or integer as Python's own."""
    if isinstance(value, bool | int | str):
        return str(value) if isinstance(value, str) else value
    if hasattr(value, "value"):
        return _plain(value.value)
    return [_plain(item) for item in value]
