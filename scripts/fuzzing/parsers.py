"""Parsers of files from other people: what reads them, and cases made of good files."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from fuzzing.archives import changed_archive
from fuzzing.code_bytes import changed_dma_code, changed_words
from fuzzing.formulas import changed_formula
from fuzzing.json_trees import changed_header, changed_json
from fuzzing.mutation import Change, changed
from fuzzing.onnx_models import changed_model
from fuzzing.readers import READERS
from fuzzing.seed_files import seeds
from fuzzing.stores import changed_store
from tvm_npu.codegen.program.parts import MAGIC

__all__ = ["READERS", "parser_case", "seeds"]


def _changed_program(rng: random.Random, data: bytes) -> bytes:
    """Mostly the header, with valid sums."""
    if rng.random() >= 0.8:
        return changed(rng, data)
    at = data.find(MAGIC)
    return data[:at] + changed_header(rng, data[at:])


_CHANGES: dict[str, Change] = {
    "program": _changed_program,
    "library": _changed_program,
    "disasm": _changed_program,
    "onnx": changed_model,
    "onnx-partition": changed_model,
    "labelled-npz": changed_archive,
    "sweep-store": changed_store,
    "sweep-formula": changed_formula,
    "profile-json": changed_json,
    **{f"disassembler-{isa}": partial(changed_words, isa=isa)
       for isa in ("nmp", "tiles", "snowflake")},
    "disassembler-pl330": changed_dma_code,
}  # fmt: skip
"""Where not any text or bytes are changed alike."""


def parser_case(rng: random.Random, name: str) -> bytes:
    """A changed file, by what is known of its structure."""
    data = rng.choice(seeds(name))
    change: Callable[[random.Random, bytes], bytes] = _CHANGES.get(name, changed)
    return change(rng, data)
