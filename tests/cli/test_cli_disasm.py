"""`tvm-npu compile` and `tvm-npu disasm`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)

from tests.patience import PATIENCE_S
from tvm_npu.cli.disasm_command import listing  # noqa: E402
from tvm_npu.codegen.program.format import PROLOGUE, Program, Segment  # noqa: E402
from tvm_npu.codegen.program.library import program_bytes_in  # noqa: E402
from tvm_npu.sim.isa.assembler import assemble  # noqa: E402
from tvm_npu.sim.nmp.xnmp import NMP_ISA

pytestmark = pytest.mark.relay

ROOT = Path(__file__).parents[2]


def test_listing_has_addresses_labels_layers_and_streams(run, lenet_program: Path) -> None:
    code, text, _ = run("disasm", lenet_program)
    assert code == 0
    program = Program.from_file(lenet_program)
    base = program.machine_description().dram.base_address
    lines = [line for line in text.splitlines() if re.search(r"# [0-9a-f]{8}: [0-9a-f]{8}$", line)]
    assert len(lines) == len(program.code)
    assert lines[0].endswith(f"# {base:08x}: {program.code[0]:08x}")
    for index, layer in enumerate(program.layers):
        assert f"# layer {index}: {layer.kind} {layer.name}" in text
    for stream in ("IN", "WEIGHT", "BIAS", "OUT"):
        assert f"# stream {stream}" in text
    label = re.search(r"b\w+ \w+, \w+, (L_[0-9a-f]{8})", text)
    assert label is not None and f"\n{label.group(1)}:\n" in text


def test_listing_assembles_back(lenet_program: Path) -> None:
    program = Program.from_file(lenet_program)
    base = program.machine_description().dram.base_address
    text = listing(program)
    assert text is not None
    np.testing.assert_array_equal(assemble(text, base, isa=NMP_ISA), program.image(base).code)


def test_one_layer(run, lenet_program: Path) -> None:
    program = Program.from_file(lenet_program)
    (entry,) = [layer for layer in program.layers if layer.name == "fc1"]
    code, text, _ = run("disasm", lenet_program, "--layer", "fc1")
    addresses = [int(found, 16) for found in re.findall(r"# ([0-9a-f]{8}): ", text)]
    base = program.machine_description().dram.base_address
    assert code == 0
    assert addresses == list(range(base + entry.code[0].begin, base + entry.code[0].end, 4))
    assert "fc1" in text and "conv1" not in text
    code, _, err = run("disasm", lenet_program, "--layer", "conv9")
    assert code == 1
    names = ", ".join(layer.name for layer in program.layers)
    assert f"no layer 'conv9'; the layers are {names}" in err and "conv1" in names


def test_programs_are_found_in_libraries(run, lenet_program: Path, tmp_path: Path) -> None:
    content = lenet_program.read_bytes()
    damaged = bytearray(content)
    damaged[-1] ^= 1
    library = tmp_path / "model.so"
    library.write_bytes(b"\x7fELF" + bytes(99) + damaged + b"TVMNPUP\n" + content + b"TVMNPUP\n")
    (program,) = map(Program.from_bytes, program_bytes_in(library.read_bytes()))
    assert program.to_bytes() == content
    damage = "a damaged program at byte 103: program file: SHA-256 of debug is "
    code, out, err = run("disasm", library)
    assert (code, out) == (0, run("disasm", lenet_program)[1])
    assert err.startswith(f"note: {str(library)!r} holds {damage}") and err.count("\n") == 1
    code, out, _ = run("check", library)
    assert code == 1 and f"BAD: a library, in it 1 sound and {damage}" in out
    library.write_bytes(library.read_bytes()[: 103 + len(damaged)] + b"TVMNPUP\n")
    code, _, err = run("disasm", library)
    assert code == 1 and f"{str(library)!r} holds no sound NPU program, and {damage}" in err
    library.write_bytes(b"\x7fELF" + bytes(99) + content + bytes(9) + b"TVMNPUP\n" + bytes(99))
    code, out, err = run("disasm", library)
    assert (code, out, err) == (0, run("disasm", lenet_program)[1], "")
    assert run("check", library)[0] == 0
    library.write_bytes(b"\x7fELF" + bytes(99))
    code, _, err = run("disasm", library)
    assert code == 1 and f"{str(library)!r} holds no sound NPU program" in err


@pytest.mark.parametrize("at", [8, 12, 16, 30, PROLOGUE.size + 40, -1])
def test_a_damaged_program_beside_a_sound_one_is_told(  # type: ignore[no-untyped-def]
    run, lenet_program: Path, tmp_path: Path, at: int
) -> None:
    """Wherever its damage is: version, sizes, sum, header or sections; and where its end is cut."""
    content = lenet_program.read_bytes()
    damaged = bytearray(content)
    damaged[at] ^= 1
    library = tmp_path / "model.so"
    for one in (bytes(damaged), content[:-9]):
        library.write_bytes(b"\x7fELF" + bytes(99) + content + bytes(7) + one)
        code, out, _ = run("check", library)
        assert code == 1 and "BAD: a library, in it 1 sound and a damaged prog" in out
        code, out, err = run("disasm", library)
        assert code == 0 and out and "a damaged program at byte " in err


def test_a_library_that_tvm_wrote(run, lenet, digits_npz, lenet_program, tmp_path: Path) -> None:
    import onnx

    from tvm_npu.door import build_onnx

    built = build_onnx(onnx.load(lenet), calibration=str(digits_npz))
    library = tmp_path / "lenet.so"
    built.library.export_library(str(library))
    code, text, err = run("disasm", library)
    assert code == 0, err
    assert text == run("disasm", lenet_program)[1]


@pytest.mark.parametrize("damage", ["short", "flipped", "longer", "empty", "version"])
def test_damaged_programs(run, lenet_program: Path, tmp_path: Path, damage: str) -> None:
    content = bytearray(lenet_program.read_bytes())
    if damage == "short":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        content[PROLOGUE.size + 40] ^= 0x20
    elif damage == "longer":
        content += b"\0"
    elif damage == "empty":
        content = bytearray()
    else:
        content[8] = 99
    path = tmp_path / "damaged.npu"
    path.write_bytes(content)
    code, out, err = run("disasm", path)
    assert (code, out) == (1, "")
    words = {"flipped": "SHA-256 of the header", "version": "format version is 99"}
    assert err.startswith(f"tvm-npu disasm: error: {str(path)!r}: program file: ")
    assert words.get(damage, "length is") in err and err.count("\n") == 1


def test_of_what_is_no_program_the_beginning_is_read(run, tmp_path: Path) -> None:
    path = tmp_path / "large.npu"
    path.touch()
    os.truncate(path, 1 << 27)
    tracemalloc.start()
    code, _, err = run("disasm", path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 26
    tracemalloc.stop()
    assert code == 1 and "large.npu': program file: magic is" in err


def test_compile_writes_one_file_for_each_region(run, make_onnx, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "programs"
    code, out, _ = run("compile", make_onnx(["Conv", "LRN", "Conv"]), "-o", folder)
    files = sorted(folder.iterdir())
    assert code == 0 and len(files) == 2
    for path in files:
        program = Program.from_file(path)
        assert path.name == f"{program.name}.npu" and str(path) in out
        assert [layer.kind for layer in program.layers] == ["conv"]
        assert path.stat().st_mode & 0o044, "readable like any other file"


def test_constants_and_code_are_where_the_heading_says(run, lenet_program: Path) -> None:
    program = Program.from_file(lenet_program)
    base = program.machine_description().dram.base_address
    addresses = program.image(base).addresses
    _, text, _ = run("disasm", lenet_program)
    for segment in Segment:
        shown = re.search(rf"^# {segment.value} +{addresses[segment]:#010x}, ", text, re.M)
        assert bool(shown) == (segment is not Segment.STATES)  # LeNet has none
    assert "int16, Q-point" in text


def test_a_reader_that_stops_early(lenet_program: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "tvm_npu.cli", "disasm", str(lenet_program)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert program.stdout is not None and program.stderr is not None
    program.stdout.close()
    assert program.stderr.read() == b""
    assert program.wait(PATIENCE_S) == 0


def test_a_layer_is_told_once_whoever_says_that_code_is_its_own(lenet_program: Path) -> None:
    """Many layers of one name may claim all code; each instruction is listed once."""
    program = Program.from_file(lenet_program)
    entry = replace(program.layers[0], name="same", code=program.images)
    many = replace(program, layers=(entry,) * 1000).checked()
    text = listing(many, "same")
    assert text is not None
    assert len(re.findall(r"# [0-9a-f]{8}: [0-9a-f]{8}\n", text)) == len(program.code)


def test_long_lists_of_sources_take_no_time(lenet_program: Path) -> None:
    """A layer's title may come up at every instruction."""
    program = Program.from_file(lenet_program)
    entry = replace(program.layers[0], source=("a" * 20,) * (1 << 17))
    debug = program.debug.copy()
    debug["layer"] = np.arange(len(debug)) % 2
    many = replace(program, layers=(entry, entry, *program.layers[2:]), debug=debug)
    begin = time.process_time()
    listing(many)
    assert time.process_time() - begin < 4e-4 * len(debug)
