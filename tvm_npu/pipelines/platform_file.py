"""Platform files: read, checked and written; those that come with the package by name."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import resources
from pathlib import Path

from tvm_npu.pipelines.errors import PlatformError
from tvm_npu.pipelines.platform import Platform, platform_from_dict
from tvm_npu.sim.bounded_files import read_text_bounded
from tvm_npu.sim.paths import as_path
from tvm_npu.sim.texts import MOST_FILE_BYTES, TextError, cause, parse_toml


def platform_names() -> tuple[str, ...]:
    """Names of the platforms that come with the package."""
    folder = resources.files("tvm_npu.pipelines") / "platforms"
    files = (item.name for item in folder.iterdir())
    return tuple(sorted(name[: -len(".toml")] for name in files if name.endswith(".toml")))


@lru_cache(maxsize=64)
def _built_in(name: str) -> Platform:
    file = resources.files("tvm_npu.pipelines") / "platforms" / f"{name}.toml"
    return platform_from_toml(file.read_text("utf-8"), origin=f"{name}.toml")


def load_platform(name_or_path: str | Path) -> Platform:
    """A built-in platform by name, or a platform file by path.

    Raises PlatformError for an unknown name, an unreadable file, or a missing or absurd key.
    """
    path = as_path(name_or_path, "a platform's name or path", PlatformError)
    text = str(name_or_path)
    if text in platform_names():
        return _built_in(text)
    if path.suffix != ".toml" and not os.path.exists(path):
        known = ", ".join(platform_names())
        raise PlatformError(f"unknown platform {text!r}: neither a file nor one of {known}")
    try:
        content = read_text_bounded(path, MOST_FILE_BYTES)
    except FileNotFoundError as error:
        raise PlatformError(
            f"cannot read platform file {text!r}: there is none; 'tvm-npu platform detect --out "
            f"{text}' writes one for this computer"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise PlatformError(f"cannot read platform file {text!r}: {cause(error)}") from error
    return platform_from_toml(content, origin=text)


def platform_from_toml(text: str, origin: str) -> Platform:
    """``origin`` names the file in messages. Raises PlatformError."""
    try:
        values = parse_toml(text)
    except TextError as error:
        raise PlatformError(f"platform file {origin}: {error}") from error
    return platform_from_dict(values, origin)


def platform_to_toml(platform: Platform) -> str:
    """The platform as a file that `load_platform` reads back to an equal one."""
    import tomlkit  # reading needs none of it

    values = platform.model_dump(mode="json", exclude_defaults=True)
    order = ("name", "description", "arrangements", "link", "places", "links")
    return tomlkit.dumps({key: values[key] for key in order if key in values})
