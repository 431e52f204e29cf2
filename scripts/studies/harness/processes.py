"""Modules of the studies in processes of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def module_command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", module, *arguments]


def module_environment(**more: str) -> dict[str, str]:
    """With which ``module_command`` finds what this process finds."""
    paths: Sequence[str] = [path or os.getcwd() for path in sys.path]
    return dict(os.environ, PYTHONPATH=os.pathsep.join(paths), **more)
