"""run-elf, machines, planners, result files, and tables that fit."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.patience import PATIENCE_S
from tvm_npu.cli import check_command
from tvm_npu.cli.elf_command import printable
from tvm_npu.cli.errors import CliError
from tvm_npu.cli.files import write_bytes, write_json
from tvm_npu.cli.planners_command import SUMMARIES
from tvm_npu.cli.tables import Column, make_table, natural_width, print_tables, shortened
from tvm_npu.codegen.plan import RegisteredPlanner, planner_names, tuned_planner_names
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.machine_file import load_machine, machine_from_toml, machine_names
from tvm_npu.sim.nmp.bare_metal import CONSOLE_BYTES, run_elf
from tvm_npu.sim.nmp.elf import read_elf
from tvm_npu.sim.nmp.machine import load_nmp_machine
from tvm_npu.sim.nmp.xnmp import NMP_ISA
from tvm_npu.sim.whole_files import write_whole

ELF = Path(__file__).parents[1] / "sim" / "nmp" / "data" / "checksum.elf"
ENTRY, DATA = 0x8000_0000, 0x8001_0000


def test_run_elf(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    machine = load_nmp_machine("nmp-4x8")
    done = run_elf(read_elf(ELF, machine), machine)
    wanted, statistics = done.exit_code, done.statistics
    code, out, _ = run("run-elf", ELF)
    assert code == 0
    assert out.startswith(f"exit code {wanted}, {statistics.cycles:,.0f} cycles (")
    assert f"{statistics.instructions:,} instructions" in out
    code, _, err = run("run-elf", ELF, "--budget", 1000)
    assert code == 1 and "still running after" in err
    code, _, err = run("run-elf", ELF, "--limits", "dram_bytes=1k")
    assert code == 1 and "limit dram_bytes allows 1024" in err
    assert run("run-elf", ELF, "--limits", "speed=1")[0] == 2
    target = tmp_path / "elf.json"
    code, out, _ = run(
        "run-elf", ELF, ELF, "--registers", "--dump", "0x80000000:20", "--json", target,
        "--exit-code",
    )  # fmt: skip
    assert code == wanted & 0xFF
    rows = json.loads(target.read_text())["programs"]
    assert len(rows) == 2 and rows[0] == rows[1]
    assert rows[0]["registers"]["a0"] == wanted and rows[0]["cycles"] == statistics.cycles
    assert rows[0]["memory"]["0x80000000"] == done.memory(0x8000_0000, 20).hex()
    assert f"a0   {wanted:#010x}" in out
    assert f"0x80000010  {done.memory(0x8000_0010, 4).hex(' ')}" in out
    broken = tmp_path / "broken.elf"
    broken.write_bytes(ELF.read_bytes()[:100])
    code, out, err = run("run-elf", broken, ELF, "--json", target)
    assert code == 1 and "1 of 2 executables did not run to their end" in err
    assert f"{broken}: " in out and f"{ELF}: exit code {wanted}" in out
    rows = json.loads(target.read_text())["programs"]
    assert "broken.elf" in rows[0]["error"] and rows[1]["exit_code"] == wanted
    code, _, err = run("run-elf", ELF, "--budget", 1 << 64)
    assert code == 2 and "argument --budget: '18446744073709551616' is more than 9223372" in err
    for limit, budget in ((20, 10), (10, 20), (10, None)):
        given = [] if budget is None else ["--budget", budget]
        code, _, err = run("run-elf", ELF, "--limits", f"instructions={limit}", *given)
        assert code == 1 and "still running after 10 instructions" in err
    code, _, err = run("run-elf", ELF, "--limits", "work=1,work=2")
    assert code == 2 and "argument --limits: limit work is given twice" in err
    code, _, err = run("run-elf", ELF, "--dump", "0x10:4")
    assert code == 1 and "do not lie in the program's memory" in err
    # before the program runs, which may take long
    code, _, err = run("run-elf", ELF, "--dump", "0x10:4", "--budget", 1)
    assert code == 1 and "do not lie in the program's memory" in err
    code, _, err = run("run-elf", ELF, "--machine", "setup-a")
    assert code == 1 and "'setup-a' is of isa 'tiles'; executables run on machines of 'nmp'" in err


def test_run_elf_shows_console_and_trace(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    hello = ELF.with_name("hello.elf")
    target = tmp_path / "elf.json"
    code, out, _ = run("run-elf", hello, "--trace", 2, "--json", target, "--exit-code")
    assert code == 42 and out.startswith("hello\n")
    lines = out.splitlines()
    assert lines[1].split()[2:] == ["addi", "a7,", "zero,", "93", "a7", "=", "0x0000005d"]
    assert lines[2].split()[0] == "28" and lines[2].endswith("ecall")
    row = json.loads(target.read_text())["programs"][0]
    assert row["console"] == "hello\n" and row["trace"] == lines[1:3]
    assert run("run-elf", hello, "--trace", 100_001)[0] == 2
    assert printable("a\x1b[31m\tb\n\x07") == "a?[31m\tb\n?"
    folder = Path(next(line for line in run("run-elf", "--help")[1].splitlines()
                       if line.endswith("start") and not line.startswith(" ")))  # fmt: skip
    assert (folder / "program.ld").is_file() and (folder / "start.S").is_file()


@pytest.mark.parametrize("count", [1, 2])
def test_run_elf_shows_what_is_left_where_a_program_traps(  # type: ignore[no-untyped-def]
    run, tmp_path: Path, count: int
) -> None:
    """hello.elf with an ebreak in place of the call that ends it, its first."""
    target, trapping = tmp_path / "elf.json", tmp_path / "trapping.elf"
    hello = ELF.with_name("hello.elf")
    ecall, ebreak = b"\x73\0\0\0", b"\x73\0\x10\0"
    trapping.write_bytes(hello.read_bytes().replace(ecall, ebreak, 1))
    code, out, err = run(
        "run-elf", *(trapping, hello)[:count], "--registers", "--dump", "0x80000000:4",
        "--trace", 1, "--json", target,
    )  # fmt: skip
    assert code == 1 and ("ebreak" in err if count == 1 else "1 of 2 executables" in err)
    rows = json.loads(target.read_text())["programs"]
    assert len(rows) == count
    row = rows[0]
    machine = load_nmp_machine("nmp-4x8")
    first_word = read_elf(trapping, machine).segments[0].data[:4]
    assert "ebreak" in row["error"] and "exit_code" not in row and row["instructions"] > 5
    assert row["console"] == "hello\n" and row["memory"] == {"0x80000000": first_word.hex()}
    assert len(row["trace"]) == 1 and "ebreak" in row["trace"][0]
    assert row["registers"]["a7"] == 93
    assert out.startswith("hello\n") and "a7   0x0000005d" in out
    assert f"0x80000000  {first_word.hex(' ')}" in out


def with_segment_of(size: int, path: Path) -> Path:
    """A copy of `ELF` whose second segment takes ``size`` bytes."""
    content = bytearray(ELF.read_bytes())
    (headers,) = struct.unpack_from("<I", content, 28)
    struct.pack_into("<I", content, headers + 32 + 20, size)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("count", [1, 2])
def test_run_elf_names_the_file_that_finds_no_room(run, tmp_path: Path, count: int) -> None:  # type: ignore[no-untyped-def]
    """Its segments fit into the machine's 1 GiB, the stack behind them does not."""
    path = with_segment_of((1 << 30) - (1 << 18), tmp_path / "large.elf")
    code, out, err = run("run-elf", *(path, ELF)[:count])
    assert code == 1 and (f"{path} needs 107" in err if count == 1 else f"{path}: needs 107" in out)
    text = err if count == 1 else out
    assert " for the stack's guard and 1048576 for the stack; nmp-4x8 has 1073741824" in text
    for damaged in (b"no ELF", ELF.read_bytes()[:100]):
        path.write_bytes(damaged)
        _, out, err = run("run-elf", *(path, ELF)[:count])
        assert (err if count == 1 else out).count(str(path)) == 1
    if count == 1:
        _, _, err = run("run-elf", ELF, "--limits", "dram_bytes=1k")
        assert f"error: {ELF} needs " in err


def test_run_elf_goes_on_where_memory_runs_out(tmp_path: Path) -> None:
    large, target = with_segment_of(900_000_000, tmp_path / "large.elf"), tmp_path / "elf.json"
    command = (
        "import resource, sys\n"
        "from tvm_npu.cli import main\n"
        f"assert main(['run-elf', {str(ELF)!r}]) == 0\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20),) * 2)\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", command, "run-elf", large, ELF, "--json", target],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "1 of 2 executables did not run to their end" in done.stderr
    assert f"{large}: on nmp-4x8: no memory to simulate it" in done.stdout
    first, second = json.loads(target.read_text())["programs"]
    assert "no memory to simulate it" in first["error"] and "exit_code" in second


def written_by(text: bytes, folder: Path) -> Path:
    """A program that writes ``text``."""
    code = f"""
        li a0, 1
        li a1, {DATA}
        li a2, {len(text)}
        li a7, 64
        ecall
        li a0, 0
        li a7, 93
        ecall
    """
    words = assemble(code, ENTRY, isa=NMP_ISA).tobytes()
    return elf_file(folder / "writes.elf", ENTRY, (ENTRY, words, 5), (DATA, text, 4))


def elf_file(path: Path, entry: int, *segments: tuple[int, bytes, int]) -> Path:
    """An executable of segments (address, bytes, flags)."""
    at = 52 + 32 * len(segments)
    headers, content = b"", b""
    for address, data, flags in segments:
        size = len(data)
        headers += struct.pack(
            "<8I", 1, at + len(content), address, address, size, size, flags, 4
        )
        content += data
    start = b"\x7fELF\x01\x01\x01" + bytes(9)
    fields = (2, 243, 1, entry, 52, 0, 0, 52, 32, len(segments), 40, 0, 0)
    path.write_bytes(start + struct.pack("<2H5I6H", *fields) + headers + content)
    return path


def said_and_taken(run, *args: object) -> tuple[str, int]:  # type: ignore[no-untyped-def]
    """What ``run-elf`` says, and the most memory that Python took for it."""
    tracemalloc.start()
    try:
        code, out, err = run("run-elf", *args)
        assert code == 0, err
        return out, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", [b"\n" * CONSOLE_BYTES, b"\t\n:smile: " * (CONSOLE_BYTES // 10)])
def test_what_a_program_writes_is_not_laid_out(run, tmp_path: Path, text: bytes) -> None:  # type: ignore[no-untyped-def]
    """A terminal's layout of a megabyte of lines takes seconds, and hundreds of megabytes."""
    _, least = said_and_taken(run, written_by(b"x", tmp_path))
    path = written_by(text, tmp_path)
    begin = time.process_time()
    out, most = said_and_taken(run, path)
    assert out.startswith(text.decode())
    assert most - least < 40 * len(text)
    assert time.process_time() - begin < 2.5


def test_a_large_dump_is_made_line_by_line(run) -> None:  # type: ignore[no-untyped-def]
    size = 1 << 20
    _, least = said_and_taken(run, ELF)
    out, most = said_and_taken(run, ELF, "--dump", f"{DATA:#x}:{size - 1}")
    lines = out.splitlines()
    assert len(lines) == 1 + size // 16
    assert lines[-1].startswith(f"{DATA + size - 16:#010x}  ") and len(lines[-1]) == 12 + 15 * 3 - 1
    assert most - least < 2 * len(out)  # which a test keeps


def test_run_elf_writes_json_of_what_does_not_run(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    target, broken = tmp_path / "elf.json", tmp_path / "broken.elf"
    broken.write_bytes(ELF.read_bytes()[:100])
    code, out, err = run("run-elf", broken, "--registers", "--json", target)
    assert code == 1 and "truncated" in err
    (row,) = json.loads(target.read_text())["programs"]
    assert set(row) == {"file", "error"} and not out


def test_machines(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    target = tmp_path / "machines.json"
    code, out, _ = run("machines", "--json", target)
    assert code == 0
    listed = json.loads(target.read_text())["machines"]
    assert [machine["name"] for machine in listed] == list(machine_names())
    for name in machine_names():
        assert f"\n{name} " in out
        code, out_one, _ = run("machines", name, "--json", target)
        values = load_machine(name).model_dump()
        assert code == 0 and json.loads(target.read_text()) == values
        assert machine_from_toml(out_one, name) == load_machine(name)


def test_planners(run) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = run("planners")
    lines = out.splitlines()
    assert code == 0
    names = [*planner_names(), *tuned_planner_names()]
    assert [line.split()[0] for line in lines] == names
    assert all(len(line.split()) > 4 for line in lines), "every planner is explained"
    assert set(SUMMARIES) <= set(names)
    assert not any(RegisteredPlanner.__doc__ in line for line in lines)  # says nothing about one
    # what a planner of another package says of itself
    assert (
        RegisteredPlanner("naive").explained()
        == "`double-buffer` and, with ``fills_only``, `naive`."
    )
    assert RegisteredPlanner("snowflake").explained() == "The compiler's paper's own choices."


def test_files_are_whole_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to(path)
    write_json(link, {"ü": 1.5, "none": None})
    assert link.is_symlink() and json.loads(path.read_text()) == {"ü": 1.5, "none": None}
    with pytest.raises(ValueError):
        write_json(path, {"x": float("nan")})
    assert json.loads(path.read_text())["ü"] == 1.5
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "link.json"]
    path.chmod(0o600)
    mask = os.umask(0o027)
    try:
        write_bytes(path, b"x")
        write_bytes(tmp_path / "new", b"x")
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o600, "as it was"
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


def test_names_of_full_length_and_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / ("n" * 255)
    write_whole(path, b"old")
    path.chmod(0o600)
    seen = []
    change = os.chmod
    monkeypatch.setattr(
        os, "chmod", lambda name, mode: (seen.append(os.stat(name).st_mode), change(name, mode))
    )
    write_whole(path, b"secret")
    assert path.read_bytes() == b"secret" and [mode & 0o777 for mode in seen] == [0o600]


def test_check_says_before_the_work_that_its_rows_cannot_be_written(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, err = run(
        "check", ELF.with_name("hello.elf"), "--json", tmp_path / "no" / "rows.json"
    )
    assert code == 1 and not out and "there is no folder" in err


def test_check_goes_on_behind_what_it_has_no_error_for(  # type: ignore[no-untyped-def]
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = ELF.with_name("hello.elf"), tmp_path / "x.toml"
    second.write_text("x = 1\n")
    monkeypatch.setitem(check_command._TEXTS, ".toml", lambda path: [].pop())
    code, out, err = run("check", second, first)
    assert code == 1 and "1 of 2 files are not good" in err
    assert "BAD: no error for it (IndexError: pop from empty list)" in out and "executable" in out


@pytest.fixture
def patience() -> Iterator[None]:
    """Errors in place of waiting for ever for who writes into a FIFO."""

    def late(*_: object) -> None:
        raise TimeoutError("opened a FIFO")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 60.0, 0.5)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("suffix", [".toml", ".jsonl", ".ir", ".npu", ".elf", ".so", ""])
def test_check_refuses_what_is_no_file(run, tmp_path: Path, suffix: str) -> None:  # type: ignore[no-untyped-def]
    """Folders, FIFOs, devices, links that lead to them and links in a circle."""
    folder, fifo = tmp_path / f"folder{suffix}", tmp_path / f"fifo{suffix}"
    link, circle = tmp_path / f"link{suffix}", tmp_path / f"circle{suffix}"
    folder.mkdir()
    os.mkfifo(fifo)
    link.symlink_to(fifo)
    circle.symlink_to(circle)
    code, out, err = run("check", folder, fifo, link, "/dev/zero", circle, ELF)
    assert code == 1 and "5 of 6 files are not good" in err
    lines = out.splitlines()
    folder_line, *others = (line.rpartition("BAD: ")[2] for line in lines[:4])
    assert folder_line == "cannot read it: Is a directory"
    for line, kind in zip(others, ("named pipe", "named pipe", "device"), strict=True):
        assert line.startswith(f"cannot read it: a {kind}")
    assert "BAD: cannot read it: " in lines[4] and "executable: " in lines[5]


@pytest.mark.parametrize("suffix", [".toml", ".ir", ""])
def test_check_says_which_byte_of_a_file_is_no_text(run, tmp_path: Path, suffix: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / f"x{suffix}"
    path.write_bytes(b"name = \xff")
    code, out, _ = run("check", path)
    assert code == 1 and "not text (byte 7: invalid start byte)" in out


@pytest.mark.parametrize("suffix", ["elf", "npz", "onnx", "so", "toml", "npu", "ir"])
def test_check_says_that_a_file_is_empty(run, tmp_path: Path, suffix: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / f"x.{suffix}"
    path.touch()
    code, out, _ = run("check", path)
    assert code == 1 and out.endswith("BAD: an empty file\n")


def test_check_says_which_kinds_it_knows(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for name, content in (("x.elf", "text"), ("x.npz", "PK"), ("x.onnx", "a = 1\n"), ("x.so", "#")):
        path = tmp_path / name
        path.write_text(content)
        code, out, _ = run("check", path)
        assert code == 1 and "not a kind of file that check knows: machine, platform and" in out
    path = tmp_path / "machine.txt"
    path.write_text('name = "mine"\nextends = "nmp-4x8"\n')
    code, out, _ = run("check", path)
    assert code == 0 and "machine mine (nmp)" in out
    path = tmp_path / "empty.jsonl"  # as `tune` leaves it when it is interrupted at once
    path.touch()
    code, out, _ = run("check", path)
    assert code == 0 and out.endswith(": empty tuning log\n")


@pytest.mark.parametrize(
    "command", [["machines"], ["check", str(ELF)], ["--help"], ["doctor", "-h"]]
)
def test_whoever_reads_the_output_may_leave(command: list[str]) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tvm_npu", *command], stdout=writes, stderr=subprocess.PIPE
        )
    finally:
        os.close(writes)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_commands_whose_reader_left_do_all_the_same(
    tmp_path: Path, both: bool, unbuffered: str
) -> None:
    """Their files and their exit codes: a bad file stays one."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tvm_npu", "check", "no1", "no2", "--json", "r.json"],
            stdout=writes, stderr=writes if both else subprocess.PIPE, cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    finally:
        os.close(writes)
    assert done.returncode == 1
    assert both or done.stderr == b"tvm-npu check: error: 2 of 2 files are not good\n"
    rows = json.loads((tmp_path / "r.json").read_text())
    assert [(row["file"], row["good"]) for row in rows] == [("no1", False), ("no2", False)]


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"PYTHONIOENCODING": "ascii"}, "\\xe9\\u2192.npu"),
        ({"PYTHONIOENCODING": "latin-1"}, "\xe9\\u2192.npu"),
        ({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
         "".join(f"\\udc{byte:x}" for byte in "é→".encode()) + ".npu"),  # knows bytes only
        ({"LC_ALL": "C.UTF-8"}, "é→.npu"),
    ],
)  # fmt: skip
def test_encodings_without_a_character(
    tmp_path: Path, environment: dict[str, str], name: str
) -> None:
    """It is escaped, and the other files are told."""
    done = subprocess.run(
        [sys.executable, "-m", "tvm_npu", "check", "é→.npu", "other.npu"], capture_output=True,
        cwd=tmp_path, env={**os.environ, **environment},
    )  # fmt: skip
    encoding = "utf-8" if "UTF-8" in str(environment) else "latin-1"
    first, second = done.stdout.decode(encoding).splitlines()
    assert first.startswith(f"{name}: BAD: cannot read it")
    assert second.startswith("other.npu: BAD: cannot read it")
    assert done.returncode == 1 and done.stderr.decode(encoding).count("\n") == 1


@pytest.mark.parametrize("name", ["COLUMNS", "LINES"])
@pytest.mark.parametrize("extent", ["\N{SUPERSCRIPT TWO}", "9" * 5000, "0", ""])
def test_extents_of_terminals_that_are_none(tmp_path: Path, name: str, extent: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tvm_npu", "planners"], capture_output=True, cwd=tmp_path,
        env={**os.environ, name: extent},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"") and b"exact" in done.stdout


def test_results_whose_reader_left_are_an_error(tmp_path: Path) -> None:
    """A result is not what a command prints: who asked for it does not have it."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tvm_npu", "machines", "nmp-4x8", "--json", f"/dev/fd/{writes}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=tmp_path, pass_fds=[writes],
        )  # fmt: skip
    finally:
        os.close(writes)
    assert done.returncode == 1 and b"cannot write '/dev/fd/" in done.stderr


def test_devices_are_written_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_bytes(pipe, b"through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    read, write = os.pipe()  # as /dev/stdout is, and >(...) of a shell: its real path is no file
    try:
        write_whole(f"/proc/self/fd/{write}", b"nameless")
        assert os.read(read, 100) == b"nameless"
    finally:
        os.close(read)
        os.close(write)
    with pytest.raises(CliError, match="there is no folder"):
        write_bytes(tmp_path / "no" / "x", b"")


@pytest.mark.parametrize("mode", ["ab", "wb"])
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
def test_what_is_open_already_is_not_replaced(tmp_path: Path, mode: str, name: str) -> None:
    """``--json /dev/stdout >> FILE``: behind what the file has and what the command prints."""
    (tmp_path / "link").symlink_to("/dev/stdout")
    path = tmp_path / "out.txt"
    path.write_text("old\n")
    with path.open(mode) as out:
        done = subprocess.run(
            [sys.executable, "-m", "tvm_npu.cli", "machines", "nmp-4x8", "--json", name],
            stdout=out, stderr=subprocess.PIPE, cwd=tmp_path,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    text = path.read_text()
    printed, brace, content = text.partition("\n{")
    assert printed.startswith("old\nname = " if mode == "ab" else "name = ")
    assert json.loads(brace + content)["name"] == "nmp-4x8"


def test_nothing_is_written_into_what_is_open_for_reading(tmp_path: Path) -> None:
    path = tmp_path / "own"
    path.write_bytes(b"precious")
    with path.open("rb") as file, pytest.raises(OSError, match="Bad file descriptor"):
        write_whole(f"/dev/fd/{file.fileno()}", b"new")
    with pytest.raises(OSError, match="Bad file descriptor"):
        write_whole("/dev/fd/1000000", b"new")
    assert path.read_bytes() == b"precious"


long_names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=20, max_size=40)
names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)


@given(st.lists(st.tuples(names, names, st.integers(0, 10**12)), min_size=1, max_size=6),
       st.integers(50, 200))  # fmt: skip
def test_tables_keep_numbers_whole_and_fit(rows: list[tuple[str, str, int]], width: int) -> None:
    columns = [
        Column("layer", tuple(row[0] for row in rows), name=True, total="total"),
        Column("source", tuple(row[1] for row in rows), name=True),
        Column("MACs", tuple(f"{row[2]:,}" for row in rows), total="1"),
    ]
    console = Console(width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(make_table(columns, width))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    shown = lines[2:-2]
    assert len(shown) == len(rows)
    for line, (name, source, number) in zip(shown, rows, strict=True):
        assert line.rstrip().endswith(f" {number:,}") or line.rstrip() == f"{number:,}"
        if natural_width(columns) <= width:
            assert line.startswith(name) and source in line


@given(st.lists(st.tuples(names, long_names, st.integers(0, 10**12)), min_size=1, max_size=6),
       st.integers(44, 120))  # fmt: skip
def test_keys_and_numbers_are_whole_or_their_column_is_named(
    rows: list[tuple[str, str, int]], width: int
) -> None:
    columns = [
        Column("name", tuple(row[0] for row in rows), key=True),
        Column("isa", tuple(row[1] for row in rows), key=True),
        Column("int8\nMACs", tuple(f"{row[2]:,}" for row in rows)),
        Column("description", tuple("a b c d e f g" * 3 for _ in rows), prose=True),
    ]
    console = Console(width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        print_tables(columns, console)
    *printed, last = capture.get().splitlines()
    left_out = last if last.startswith("left out in") else ""
    assert max(map(len, printed)) <= width
    assert "description" in capture.get()
    kept = 3 - ("isa" in left_out) - ("int8 MACs" in left_out)
    lines = capture.get().partition("\n\n")[0].split("\u2500\n")[1].splitlines()
    shown = [line.split()[:kept] for line in lines if line[0] != " " and line != left_out]
    assert shown == [[name, isa, f"{number:,}"][:kept] for name, isa, number in rows]


@given(names, st.integers(3, 50))
def test_shortened_names_keep_both_ends(text: str, width: int) -> None:
    short = shortened(text, width)
    assert len(short) == min(len(text), width)
    if len(text) > width:
        head, tail = short.split("…")[0], short.rpartition("…")[2]
        assert text.startswith(head) and text.endswith(tail)
    else:
        assert short == text
