"""``scripts/fuzz TARGET|all --minutes N --json FILE``: runs cases in processes of their own."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import select
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from fuzzing.apart import outcome_apart
from fuzzing.row_file import GrowingRow, Row, commit_of_code, minutes_spent, rows_in
from fuzzing.targets import TARGETS, Target, case_of

CORPUS = Path(__file__).resolve().parents[2] / "tests" / "trust" / "corpus"
LEAST_CASES = 50
TURN_MINUTES = 1.0
"""Of a target under ``--up-to``."""
SILENCE_SECONDS = 600
"""Without a line from a worker: something sleeps. Most is compiling on a busy machine."""
MOST_REDUCTIONS = 300
REDUCTION_CPU_S = 1.0
"""Of a try: a shorter input may hang where the case did not."""
HANG_COUNTS = 20
"""Tries that one which hangs counts for."""
WRITTEN_EVERY_S = 5.0
"""What a run that is killed may lose."""
SIGPROF = 27


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("target", help=f"all, simulators, parsers, or: {', '.join(TARGETS)}")
    parser.add_argument("--minutes", type=float, default=1.0, help="altogether (default: 1)")
    parser.add_argument("--up-to", type=float, metavar="MINUTES", help="instead: until the rows "
                        "of each target in the file of --json, of all commits, have so many "
                        "minutes of CPU time; in turns of a minute, the least first")
    parser.add_argument("--json", type=Path, help="add the rows to those in a file while they "
                        "grow: sums for each target and commit")
    parser.add_argument("--seed", type=int, help="number of the first case (default: any)")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="where bad cases are kept")
    args = parser.parse_args(argv)
    chosen = _chosen(args.target)
    if not chosen:
        parser.error(f"there is no target {args.target!r}")
    try:
        if args.json is not None:
            rows_in(args.json)
    except (OSError, ValueError, TypeError) as error:
        parser.error(f"--json {args.json}: no rows of fuzzing that could be added to: {error}")
    if args.up_to is not None and args.json is None:
        parser.error("--up-to counts the rows of a file: it needs --json")
    is_bad = False
    for target, minutes in _turns(chosen, args.minutes, args.up_to, args.json):
        first = random.SystemRandom().randrange(1 << 40) if args.seed is None else args.seed
        row = _row_of(target, minutes, first, args.corpus, args.json)
        is_bad = is_bad or row.bad > 0
        print(
            f"{row.target:22} {row.cases:7} cases {row.accepted:7} accepted {row.typed_errors:7} "
            f"typed errors {row.bad:4} bad {row.cpu_s:8.1f} s", flush=True,
        )  # fmt: skip
        for fault in dict.fromkeys(row.faults):
            print(f"    {fault}", flush=True)
    return 1 if is_bad else 0


def _turns(
    chosen: list[Target], minutes: float, up_to: float | None, rows: Path | None
) -> Iterator[tuple[Target, float]]:
    """Which target is next, and for how many minutes. Looks into the file before each turn: other
    runs add to it, too."""
    if up_to is None or rows is None:
        yield from ((target, minutes / len(chosen)) for target in chosen)
        return
    by_name = {target.name: target for target in chosen}
    while True:
        spent = minutes_spent(rows_in(rows), list(by_name))
        name = min(spent, key=lambda one: (spent[one], one))
        if spent[name] >= up_to:
            return
        yield by_name[name], min(TURN_MINUTES, up_to - spent[name])


def _row_of(target: Target, minutes: float, first: int, corpus: Path, rows: Path | None) -> Row:
    """What the cases of a target came to in so many minutes, checked for bounds in one half."""
    row = Row(target.name, commit_of_code())
    kept = GrowingRow(rows, row)
    modes = (False, True) if target.compiled else (False,)
    try:
        for checked in modes:
            _fuzz(target, row, first, 60 * minutes / len(modes), checked, corpus, kept)
        if not row.accepted:
            row.bad += 1
            row.faults.append("no case was accepted: mutation begins with what is no good file")
    finally:
        kept.write()
    return row


def _chosen(name: str) -> list[Target]:
    groups = {
        "all": list(TARGETS.values()),
        "simulators": [one for one in TARGETS.values() if one.compiled],
        "parsers": [one for one in TARGETS.values() if not one.compiled],
    }
    return groups.get(name, [TARGETS[name]] if name in TARGETS else [])


def worker(name: str, first: int, last: int, folder: str, checked: bool) -> subprocess.Popen[str]:
    """A process for cases; ``checked``: compiled code checks the bounds of arrays."""
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    root = Path(__file__).resolve().parents[2]
    paths = [str(root), str(root / "scripts"), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    if checked:
        environment |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(_own_folder())}
    command = [sys.executable, "-m", "fuzzing.worker", name, str(first), str(last), folder]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )


def _own_folder() -> Path:
    """For machine code that checks bounds. Who may write there decides what runs here."""
    folder = Path(tempfile.gettempdir()) / f"tvm-npu-bounds-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise SystemExit(f"fuzz: {folder} is not a folder that you alone can write; remove it")
    return folder


def _fuzz(
    target: Target, row: Row, first: int, seconds: float, checked: bool, corpus: Path,
    kept: GrowingRow,
) -> None:  # fmt: skip
    """Cases from ``first`` on, until their CPU time is used up and enough have run; those that are
    kept before them, where bounds are checked."""
    if checked:
        _run_kept(target, row, corpus / target.name)
    case, before = first, row.cases
    budget = row.cpu_s + seconds
    while row.cpu_s < budget or row.cases - before < LEAST_CASES:
        process = worker(target.name, case, case + (1 << 40), "", checked)
        try:
            case = _watch(process, target, row, case, budget, before, checked, corpus, kept)
        finally:
            process.kill()
            process.wait()
        if case < 0:
            return


def _run_kept(target: Target, row: Row, folder: Path) -> None:
    """What is kept of earlier runs, with checks of bounds: the tests run it without."""
    files = sorted(folder.glob("*"))
    if not files:
        return
    process = worker(target.name, 0, 0, str(folder), True)
    try:
        said, _ = process.communicate(timeout=2 * SILENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
    ended = [line for line in map(json.loads, said.splitlines()) if "end" in line]
    outcomes = [(line["found"], line["cpu_s"]) for line in ended]
    if len(ended) < len(files):
        outcomes.append((f"bad exit code {process.returncode}", 0.0))
    for file, (found, cpu_s) in zip(files, outcomes, strict=False):
        row.count(found, cpu_s, True)
        if found.startswith("bad"):
            row.faults.append(f"{found} (kept case {file.name}, bounds checked)")


def _watch(
    process: subprocess.Popen[str], target: Target, row: Row, case: int, budget: float,
    before: int, checked: bool, corpus: Path, kept: GrowingRow,
) -> int:  # fmt: skip
    """Reads what a worker says until it ends or enough was done; the next case, -1: stop."""
    assert process.stdout is not None
    running: int | None = None
    following = case
    begun = written = time.monotonic()
    while True:
        ready, _, _ = select.select([process.stdout], [], [], SILENCE_SECONDS)
        line = process.stdout.readline() if ready else ""
        if not line:
            code = process.wait() if ready else "silence"
            if running is None:
                row.bad += 1
                row.faults.append(f"the worker ended with {code} before case {following}")
                return -1
            text = "hang" if code in (-SIGPROF, "silence") else f"crash, exit code {code}"
            row.count(f"bad {text}", 0.0, checked)
            _keep(target, row, running, f"bad {text}", checked, corpus)
            return running + 1
        said = json.loads(line)
        if "begin" in said:
            running = int(said["begin"])
        elif "end" in said:
            found = said["found"]
            row.count(found, said["cpu_s"], checked)
            if found.startswith("bad"):
                _keep(target, row, int(said["end"]), found, checked, corpus)
            running, following = None, int(said["end"]) + 1
            if time.monotonic() - written > WRITTEN_EVERY_S:
                kept.write()
                written = time.monotonic()
            enough = row.cases - before >= LEAST_CASES
            late = time.monotonic() - begun > 20 * max(60.0, budget)
            if (row.cpu_s >= budget or late) and enough:
                return -1


def _keep(
    target: Target, row: Row, number: int, found: str, checked: bool, corpus: Path
) -> None:
    """Writes a bad case to the corpus; a smaller one, where its error comes in this process."""
    data = case_of(target, number)
    if not checked and found.startswith("bad ") and found.split()[1][:1].isupper():
        data = reduced(target, data, " ".join(found.split()[:2]))
    mode = ", bounds checked" if checked else ""
    row.faults.append(f"{found} (case {number}{mode})")
    folder = corpus / target.name
    if sum(1 for _ in folder.glob("*")) < 40:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


def reduced(target: Target, data: bytes, kind: str) -> bytes:
    """A shorter input with the same sort of outcome, found by leaving parts out."""
    tries, size = 0, max(1, len(data) // 2)
    while size and tries < MOST_REDUCTIONS:
        begin, shorter = 0, False
        while begin < len(data) and tries < MOST_REDUCTIONS:
            candidate = data[:begin] + data[begin + size :]
            found = outcome_apart(target, candidate, REDUCTION_CPU_S)
            tries += HANG_COUNTS if found == "bad hang" else 1
            if found.startswith(kind):
                data, shorter = candidate, True
            else:
                begin += size
        size = size if shorter and size > 1 else size // 2
    return data


if __name__ == "__main__":
    sys.exit(main())
