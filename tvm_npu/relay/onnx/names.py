"""What ONNX nodes are called in messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def called(operator: str, attr: Mapping[str, Any]) -> str:
    """``operator`` and the node's name, as TVM's frontend leaves it in the attributes."""
    return f"{operator} {attr.get('tvm_custom', {}).get('name', '')!r}"
