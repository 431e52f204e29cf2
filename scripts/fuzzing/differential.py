"""``scripts/differential NAME|all --programs N --json FILE``: random programs on the simulators and
on plain interpreters of the instruction sets (`tests/sim/*/differential.py`)."""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SAID = 20
"""Differences of a name that are printed."""


def cases() -> dict[str, Callable[[int], str]]:
    """By name: what runs the program of a number and says how it went."""
    found: dict[str, Callable[[int], str]] = {}
    for path in sorted((ROOT / "tests" / "sim").glob("*/differential.py")):
        found |= importlib.import_module(f"tests.sim.{path.parent.name}.differential").CASES
    return found


def compared(name: str, run: Callable[[int], str], first: int, programs: int) -> dict[str, Any]:
    """The row of a name."""
    counts: Counter[str] = Counter()
    traps: Counter[str] = Counter()
    begun = time.process_time()
    for number in range(first, first + programs):
        text = run(number)
        kind, _, rest = text.partition(" ")
        counts[kind.rstrip(":")] += 1
        if kind == "traps":
            traps[rest] += 1
        elif kind == "differs:" and counts["differs"] <= SAID:
            print(f"{name} program {number} {text}", flush=True)
    row = {"target": name, "programs": programs, "first": first}
    kinds = "agrees", "traps", "races", "unnamed", "beyond", "runs", "differs"
    row |= {kind: counts[kind] for kind in kinds}
    return row | {"trap_codes": dict(traps), "cpu_s": round(time.process_time() - begun, 3)}


def main(argv: list[str] | None = None) -> int:
    every = cases()
    parser = argparse.ArgumentParser(prog="differential", description=__doc__)
    parser.add_argument("name", choices=["all", *every])
    parser.add_argument("--programs", type=int, default=1000, help="of each name (default: 1000)")
    parser.add_argument("--first", type=int, help="number of the first program (default: any)")
    parser.add_argument("--json", type=Path, help="write the rows to a file, over what is there")
    args = parser.parse_args(argv)
    first = random.SystemRandom().randrange(1 << 40) if args.first is None else args.first
    rows = []
    for name, run in every.items():
        if args.name in ("all", name):
            rows.append(compared(name, run, first, args.programs))
            print(json.dumps(rows[-1]), flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    return 1 if any(row["differs"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
