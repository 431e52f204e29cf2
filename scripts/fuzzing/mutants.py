"""``scripts/mutants [MACHINE ...] --count N --json FILE``: programs with one word changed, and
whether a verification names the changed instruction or the first that sees the change."""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.runtime.networks import machine
from tests.verification.mutants import judged
from tvm_npu.sim.machine_file import load_machine

SMALL = "small"
"""The machine of the runtime's tests: an NMP with 2 x 2 cores."""
MACHINES = (SMALL, "setup-a", "snowflake-1cc", "zynq-7020")
RIGHT = ("named", "effect", "harmless")


def swept(name: str, seed: int, count: int) -> dict[str, Any]:
    """The row of a machine; prints what was not named right."""
    begun = time.process_time()
    verdicts = judged(machine() if name == SMALL else load_machine(name), seed, count)
    counts = Counter(one.outcome for one in verdicts)
    for one in verdicts:
        if one.outcome not in RIGHT:
            changed = f"{one.mutant.row}: {one.mutant.was} -> {one.mutant.now}"
            print(f"{name} seed {seed} {changed}: {one.outcome}: {one.divergence}", flush=True)
    row = {"machine": name, "seed": seed, "mutants": count, **dict.fromkeys(RIGHT, 0), **counts}
    return row | {"cpu_s": round(time.process_time() - begun, 3)}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("machines", nargs="*", default=MACHINES, help=f"of {', '.join(MACHINES)}")
    parser.add_argument("--count", type=int, default=200, help="of each machine (default: 200)")
    parser.add_argument("--seed", type=int, help="of the changes (default: any)")
    parser.add_argument("--json", type=Path, help="write the rows to a file, over what is there")
    args = parser.parse_args(argv)
    seed = random.SystemRandom().randrange(1 << 32) if args.seed is None else args.seed
    rows = []
    for name in args.machines:
        rows.append(swept(name, seed, args.count))
        print(json.dumps(rows[-1]), flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")
    return int(any(row["mutants"] != sum(row[right] for right in RIGHT) for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
