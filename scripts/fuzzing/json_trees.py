"""Changes of values in trees as JSON has them, and of program files' headers."""

from __future__ import annotations

import hashlib
import json
import random
from copy import deepcopy
from typing import Any

from fuzzing.mutation import changed, edge
from tvm_npu.codegen.program.parts import FORMAT_VERSION, MAGIC, PROLOGUE

_ODD: tuple[Any, ...] = (
    None, [], {}, "", "x" * 70000, True, -1, 0, 1 << 64, 1.5, float("nan"), float("inf"), [[]],
    "\x00\x1b[31m", "int8", "\ud800",
)  # fmt: skip


def change_value(rng: random.Random, values: Any) -> None:
    """Something in the tree is replaced, removed or doubled."""
    while True:
        if not isinstance(values, (dict, list)) or not values:
            return
        key = rng.choice(list(values)) if isinstance(values, dict) else rng.randrange(len(values))
        inner = values[key]
        if isinstance(inner, (dict, list)) and inner and rng.random() < 0.85:
            values = inner
            continue
        choice = rng.random()
        if choice < 0.15:
            del values[key]
        elif choice < 0.25 and isinstance(values, list):
            values.append(deepcopy(inner))
        elif isinstance(inner, int) and choice < 0.8:
            values[key] = rng.choice((edge(rng, 64), inner + 1, inner - 1, inner * 2))
        else:
            values[key] = deepcopy(rng.choice(_ODD))
        return


def changed_json(rng: random.Random, data: bytes) -> bytes:
    """JSON with some of its values changed; now and then its text."""
    if rng.random() < 0.2:
        return changed(rng, data)
    values = json.loads(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        change_value(rng, values)
    return json.dumps(values).encode()


def changed_program(rng: random.Random, data: bytes) -> bytes:
    """A program file, or one inside of a library: mostly its header, with valid sums."""
    if rng.random() >= 0.8:
        return changed(rng, data)
    at = data.find(MAGIC)
    return data[:at] + _changed_header(rng, data[at:])


def _changed_header(rng: random.Random, data: bytes) -> bytes:
    """A program file whose header is another one, with valid sums."""
    _, _, size, _, _ = PROLOGUE.unpack_from(data)
    text = changed_json(rng, data[PROLOGUE.size : PROLOGUE.size + size])
    rest = data[PROLOGUE.size + size :]
    digest = hashlib.sha256(text).digest()
    total = PROLOGUE.size + len(text) + len(rest)
    return PROLOGUE.pack(MAGIC, FORMAT_VERSION, len(text), total, digest) + text + rest
