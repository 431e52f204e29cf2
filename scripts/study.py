"""Runs a study of the folder beside this file: `study.py NAME ARGUMENT...`, from any folder."""

import sys
from pathlib import Path

# The studies and the product are those of this checkout, whatever is installed.
sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from studies.harness.command import run_named  # noqa: E402

if __name__ == "__main__":
    sys.exit(run_named(sys.argv[1:]))
