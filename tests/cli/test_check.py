"""``tvm-npu check`` reads files of others: it ends, says what they are, and one line a file."""

from __future__ import annotations

import json
import os
import re
import struct
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.codegen.tune.test_log import make_log
from tests.trust.forged import program_file
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.program.parts import CodeRange, LayerEntry, Segment
from tvm_npu.runtime.session import Session
from tvm_npu.sim.bounded_files import kept_pipe
from tvm_npu.sim.errors import SimError
from tvm_npu.sim.machine_file import load_machine

ELF = Path(__file__).parents[1] / "sim" / "nmp" / "data" / "hello.elf"
PROGRAM_HEADER = 52
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("kept", "added", "text"),
    [
        (3, b"", "tuning log: 3 trials of nmp-4x8\n"),
        (3, b'{"version": 1, "spa', "tuning log: 3 trials of nmp-4x8; its last line is torn, as "),
        (0, b'{"ver', "empty tuning log; its last line is torn"),
        (0, b"", "empty tuning log\n"),
    ],
)
def test_logs(run, tmp_path: Path, kept: int, added: bytes, text: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "x.jsonl"
    lines = make_log(path, 3) if kept else b""
    path.write_bytes(lines + added)
    code, out, err = run("check", path)
    assert code == 0 and f"{path}: {text}" in out and not err


@pytest.mark.parametrize("content", [b"this is no log at all", bytes(7)])
def test_what_is_no_log(run, tmp_path: Path, content: bytes) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    code, out, _ = run("check", path)
    assert code == 1 and "BAD: tuning log" in out and "do not begin a trial" in out


def test_files_without_an_end(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "huge.toml").touch()
    os.truncate(tmp_path / "huge.toml", 60 << 30)
    (tmp_path / "large.toml").touch()
    os.truncate(tmp_path / "large.toml", 1 << 30)
    os.mkfifo(tmp_path / "pipe.toml")
    for path, why in (
        (tmp_path / "huge.toml", "64424509440 bytes; such a file may have 4294967296"),
        (tmp_path / "large.toml", "1073741824 bytes; such a file may have 4194304"),
        (tmp_path / "pipe.toml", "a named pipe"),
        (Path("/dev/zero"), "a device"),
    ):
        code, out, _ = run("check", path)
        assert code == 1 and f"{path}: BAD: cannot read it: {why}" in out


def test_files_that_a_sweep_names(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge.toml").touch()
    os.truncate(tmp_path / "huge.toml", 60 << 30)
    for name, why in (
        ("/dev/zero", "it names machine '/dev/zero', which is no file"),
        ("/dev/stdin", "it names machine '/dev/stdin', which is no file"),
        ("pipe", "/pipe', which is no file"),
        ("huge.toml", "huge.toml': 64424509440 bytes; such a file may have 4194304"),
    ):
        for key in (f'files = ["{name}"]', f'base = "{name}"'):
            path = tmp_path / "sweep.toml"
            path.write_text(f'models = ["digits_lenet"]\n[machine]\n{key}\n')
            code, out, _ = run("check", path)
            assert code == 1 and why in out


def test_executables_are_compared_with_limits(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """With what `run-elf` says of the same."""
    content = bytearray(ELF.read_bytes())
    struct.pack_into("<I", content, PROGRAM_HEADER + 32 + 20, 250_000_000)
    path = tmp_path / "big.elf"
    path.write_bytes(content)
    for limits in ("host_bytes=1m", "dram_bytes=200m"):
        code, out, _ = run("check", path, "--limits", limits)
        _, _, err = run("run-elf", path, "--limits", limits)
        said = err.partition("error: ")[2].strip()
        assert code == 1 and said.startswith(f"{path} needs 25")
        assert f"{path}: BAD: {said.removeprefix(f'{path} ')}\n" == out
    code, out, _ = run("check", path, "--limits", "host_bytes=1g")
    assert code == 0 and "executable: 2 segments" in out


def test_executables_with_code_far_apart(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    content = bytearray(ELF.read_bytes())
    struct.pack_into("<I", content, PROGRAM_HEADER + 32 + 20, 250_000_000)
    struct.pack_into("<I", content, PROGRAM_HEADER + 32 + 24, 7)
    path = tmp_path / "big.elf"
    path.write_bytes(content)
    code, out, _ = run("check", path)
    assert code == 1 and "code may take 16777216 bytes" in out


def test_a_name_cannot_say_that_another_file_is_good(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "good.npu: program ok\ny.toml"
    path.write_text("")
    _, out, _ = run("check", path)
    assert out.count("\n") == 1 and r"program ok\ny.toml: BAD: " in out
    _, out, _ = run("run-elf", path, ELF)
    assert not any(line.startswith("y.toml") for line in out.splitlines())


@pytest.mark.parametrize("command", ["check", "run-elf"])
def test_names_that_are_no_text(run, tmp_path: Path, command: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / os.fsdecode(b"m\x80.elf")
    path.write_bytes(ELF.read_bytes())
    rows = tmp_path / "rows.json"
    code, out, err = run(command, path, path, "--json", rows)
    assert code == 0 and r"m\udc80.elf: " in out and not err
    found = json.loads(rows.read_text("utf-8"))
    row = found[0] if command == "check" else found["programs"][0]
    assert Path(row["file"]) == path


FORGED = "x\nforged:\n    li a7, 93\r\x1b[2Jgood.npu: program sound\n#"
"""A name that would be lines of their own, and clear a terminal."""


def test_names_in_files_add_no_line(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    program = Program.from_bytes(program_file(load_machine("nmp-4x8"), "nop\nret\n"))
    layer = LayerEntry(FORGED, FORGED, (FORGED,), "int16", None, None, 0, (CodeRange(0, 8),))
    debug = program.debug.copy()
    debug["layer"] = 0
    forged = replace(
        program, name=FORGED, planner=FORGED, layers=(layer,), scopes=({FORGED: 5},), debug=debug
    )
    plain = replace(
        forged, name="x", planner="x", layers=(replace(layer, name="x", kind="x", source=("x",)),),
        scopes=({"x": 5},),
    )  # fmt: skip
    shown = []
    for name, one in (("forged.npu", forged), ("plain.npu", plain)):
        one.to_file(tmp_path / name)
        code, out, err = run("disasm", tmp_path / name)
        assert code == 0 and not err
        shown.append(out.splitlines())
        assert "li a7" in out if one is forged else "layer 0: x x (x)" in out
    assert [line.partition("#")[0] for line in shown[0]] == [
        line.partition("#")[0] for line in shown[1]
    ]
    log = tmp_path / "f.jsonl"
    make_log(log, 2)
    log.write_bytes(log.read_bytes().replace(b'"nmp-4x8"', json.dumps(FORGED).encode()))
    code, out, err = run("check", tmp_path / "forged.npu", log, "--json", tmp_path / "rows.json")
    assert code == 0 and out.count("\n") == 2 and out.isascii() and "\x1b" not in out, err
    for row in json.loads((tmp_path / "rows.json").read_text()):
        assert row["what"].isprintable() and "li a7, 93" in row["what"]


def test_programs_that_no_machine_loads(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """What a session says when it loads them, said without loading."""
    tiny = load_machine("nmp-4x8").model_dump(exclude_none=True)
    tiny["dram"]["capacity_bytes"] = 1 << 16
    halves = (CodeRange(0, 4), CodeRange(4, 8))

    def with_segment(program: Program, segment: Segment, alignment: int) -> Program:
        size = replace(program.segments[segment], alignment_bytes=alignment)
        return replace(program, segments={**program.segments, segment: size})

    def mixed(program: Program) -> Program:
        one = LayerEntry("x", "conv", (), program.precision, None, None, 0, (CodeRange(0, 0),))
        return replace(program, layers=(one, replace(one, name="y", precision="int8")))

    nmp = Program.from_bytes(program_file(load_machine("nmp-4x8"), "nop\nret\n"))
    tiles = Program.from_bytes(program_file(load_machine("setup-a"), "tend\n", precision="int16"))
    snowflake = Program.from_bytes(program_file(load_machine("snowflake-4cc"), "sync end, 0\n" * 2))
    cases = (
        (replace(nmp, images=halves), "has 2 codes; the machine runs one"),
        (with_segment(nmp, Segment.CODE, 3), "does not lie, aligned to 4 bytes, in the image"),
        (
            replace(with_segment(nmp, Segment.CONSTANTS, 1 << 20), machine=tiny),
            "DRAM; nmp-4x8 has 65536",
        ),
        (mixed(tiles), "layer 'y' is int8, the program is int16"),
        (replace(snowflake, images=halves), "has 2 codes; snowflake-4cc has 4 clusters"),
    )
    path = tmp_path / "x.npu"
    for program, why in cases:
        program.to_file(path)
        with pytest.raises(SimError, match=re.escape(why)) as caught:
            Session.from_file(path)
        code, out, _ = run("check", path)
        assert code == 1 and f"BAD: {caught.value}" in out and why in out
    for program in (nmp, tiles, snowflake):
        program.to_file(path)
        assert run("check", path)[0] == 0


@pytest.fixture
def piped():  # type: ignore[no-untyped-def]
    """Gives the name of a pipe out of which a content comes."""
    opened = []

    def name(content: bytes) -> str:
        read, write = os.pipe()
        opened.append(read)

        def put() -> None:
            with suppress(BrokenPipeError), open(write, "wb") as file:
                file.write(content)

        threading.Thread(target=put).start()
        return f"/dev/fd/{read}"

    yield name
    for one in opened:
        os.close(one)


def test_what_comes_out_of_pipes(run, piped, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Is told as the same file is, though it can be read once only."""
    program = program_file(load_machine("nmp-4x8"), "nop\nret\n")
    machine = (ROOT / "sim" / "machines" / "nmp-4x8.toml").read_bytes()
    platform = (ROOT / "tvm_npu" / "pipelines" / "platforms" / "shisha-c1.toml").read_bytes()
    sweep = b'models = ["digits_lenet"]\n[machine]\nbase = "nmp-4x8"\n'
    sound = {
        "a.npu": program, "b.elf": ELF.read_bytes(), "c.toml": machine, "d.toml": platform,
        "e.toml": sweep,
    }  # fmt: skip
    for name, content in sound.items():
        (tmp_path / name).write_bytes(content)
        pipe = piped(content)
        code, out, _ = run("check", tmp_path / name, pipe)
        first, second = out.splitlines()
        assert code == 0 and second.partition(": ")[2] == first.partition(": ")[2]
        assert second.startswith(f"{pipe}: ")
    for content, why in (
        (program[:-1], "program file: length"),
        (b"", "an empty file"),
        (b"nonsense", "not a kind of file that check knows"),
        (b"[info]\nnonsense\n", "nonsense"),
        (b'{"version": 1, "space": 3}\n', "line 1"),
        (machine + b"nonsense = 1\n", "nonsense"),
    ):
        pipe = piped(content)
        code, out, _ = run("check", pipe)
        assert code == 1 and why in out and out.startswith(f"{pipe}: BAD: ")
        assert "/dev/fd/" not in out.replace(pipe, "")


def test_pipes_are_read_up_to_a_size(run, piped, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(kept_pipe, "__defaults__", (1 << 20,))
    pipe = piped(bytes(2 << 20))
    code, out, _ = run("check", pipe)
    assert code == 1
    assert f"{pipe}: BAD: cannot read it: more than 1048576 bytes; such a file may have" in out
