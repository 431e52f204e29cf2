"""The specification of the worked study: it can be read, and its energies are the page's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sweep.designs import DesignSpace
from tvm_npu.sweep.formulas import number
from tvm_npu.sweep.spec import read_spec

MACS = 300_774_272
"""Of MobileNetV2 at 224 x 224."""
STUDIES = Path(__file__).parents[2] / "docs" / "studies"


def test_the_specification_has_the_designs_and_energies_of_the_page() -> None:
    pytest.importorskip("simpleeval", reason="the sweep extra is not installed")
    spec = read_spec(STUDIES / "which-nmp.toml")
    page = (STUDIES / "which-nmp.md").read_text("utf-8")
    designs = list(DesignSpace(spec).grid())
    assert f"{len(designs)} designs" in page and all(one.machine for one in designs)
    machine = load_machine("nmp-4x8").model_dump()
    rows = re.findall(r"^\| (\d) x (\d), (\d+) KiB.*? \| int(\d+) \| (.*) \|$", page, re.M)
    assert len(rows) >= 3
    for tles, tlts, size_kb, bits, rest in rows:
        _, dram_bytes, energy_uj, scratchpad_kb = (
            float(one.replace(",", "")) for one in rest.split(" | ")
        )
        sizes = dict.fromkeys(("mb0_bytes", "mb1_bytes", "mb2_bytes"), int(size_kb) * 1024)
        names = {
            **machine, "cores": {"tles": int(tles), "tlts_per_tle": int(tlts)}, "memories": sizes,
            "macs": MACS, "dram_bytes": dram_bytes, "element_bytes": int(bits) // 8,
        }  # fmt: skip
        found = {name: number(one.formula, names, name) for name, one in spec.outcome.items()}
        assert found["energy_uj"] == pytest.approx(energy_uj, rel=1e-4)
        assert found["scratchpad_kb"] == scratchpad_kb


def test_a_formula_may_have_several_lines() -> None:
    pytest.importorskip("simpleeval", reason="the sweep extra is not installed")
    assert number("a\n* (b + 1)\n", {"a": 3, "b": 4}, "formula") == 15
