"""Parsers of files from other people: what reads them, good files, and how these are changed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from fuzzing import readers, seed_files
from fuzzing.archives import changed_archive
from fuzzing.code_bytes import changed_dma_code, changed_words
from fuzzing.formulas import FORMULAS, changed_formula
from fuzzing.jpegs import changed_jpeg, jpegs
from fuzzing.json_trees import changed_json, changed_program
from fuzzing.mutation import Change, changed
from fuzzing.onnx_models import changed_model, models
from fuzzing.pngs import changed_png, pngs
from fuzzing.stores import changed_store, store_file
from fuzzing.tflite_changes import changed_tflite
from fuzzing.tflite_models import tflite_models

Seeds = tuple[bytes, ...]


@dataclass(frozen=True)
class Parser:
    """``read`` raises an error of the project or does what the file says, ``seeds`` gives good
    files, ``change`` knows their structure."""

    read: Callable[[bytes], object]
    seeds: Callable[[], Seeds]
    change: Change = changed


PARSERS: dict[str, Parser] = {
    "machine-toml": Parser(
        readers.machine_toml, partial(seed_files.package_files, "tvm_npu.sim", "machines")
    ),
    "machine-json": Parser(readers.machine_json, seed_files.machine_json),
    "platform-toml": Parser(
        readers.platform, partial(seed_files.package_files, "tvm_npu.pipelines", "platforms")
    ),
    "plan-text": Parser(readers.plan_text, seed_files.plan_text),
    "tuning-log": Parser(readers.tuning_log, seed_files.tuning_log),
    "ranges-json": Parser(readers.ranges, seed_files.ranges),
    "calibration-npy": Parser(readers.calibration(".npy"), seed_files.npy),
    "calibration-npz": Parser(readers.calibration(".npz"), seed_files.npz, changed_archive),
    "calibration-npz-door": Parser(
        readers.calibration_npz_of_the_door, seed_files.npz, changed_archive
    ),
    "calibration-png": Parser(readers.calibration(".png"), pngs, changed_png),
    "elf": Parser(readers.elf, seed_files.elf),
    "elf-run": Parser(readers.elf_run, seed_files.elf),
    "program": Parser(readers.program, seed_files.program, changed_program),
    "disasm": Parser(readers.listing, seed_files.program, changed_program),
    "library": Parser(readers.library, seed_files.library, changed_program),
    **{
        f"assembler-{isa}": Parser(readers.assembler(isa), seed_files.assembly(isa))
        for isa in ("nmp", "tiles", "snowflake")
    },
    "assembler-pl330": Parser(readers.dma_assembler, seed_files.dma_assembly),
    **{
        f"disassembler-{isa}": Parser(
            readers.disassembler(isa), seed_files.code(isa), partial(changed_words, isa=isa)
        )
        for isa in ("nmp", "tiles", "snowflake")
    },
    "disassembler-pl330": Parser(readers.dma_disassembler, seed_files.dma_code, changed_dma_code),
    "onnx": Parser(readers.onnx_model, models, changed_model),
    "onnx-partition": Parser(readers.onnx_partition, models, changed_model),
    "tflite-partition": Parser(readers.tflite_partition, tflite_models, changed_tflite),
    "labelled-npz": Parser(readers.labelled_npz, seed_files.labelled_npz, changed_archive),
    "labelled-jpeg": Parser(readers.labelled_image(".jpg"), jpegs, changed_jpeg),
    "labelled-png": Parser(readers.labelled_image(".png"), pngs, changed_png),
    "labelled-csv": Parser(readers.labelled_csv, seed_files.labelled_csv),
    "profile-json": Parser(readers.profile_json, seed_files.profile, changed_json),
    "sweep-spec": Parser(readers.sweep_spec, seed_files.sweep_spec),
    "sweep-model": Parser(readers.sweep_model, seed_files.sweep_model),
    "sweep-store": Parser(readers.sweep_store, store_file, changed_store),
    "sweep-formula": Parser(readers.sweep_formula, lambda: FORMULAS, changed_formula),
    "limits": Parser(readers.limits, lambda: (b"work=1g,dram_bytes=512m",)),
}


@lru_cache(maxsize=len(PARSERS))
def seeds(name: str) -> Seeds:
    """Good files of a parser."""
    return PARSERS[name].seeds()


def parser_case(rng: random.Random, name: str) -> bytes:
    """A changed file."""
    return PARSERS[name].change(rng, rng.choice(seeds(name)))
