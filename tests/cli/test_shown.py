"""Names of models are texts: they steer no terminal and break no row."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tvm_npu.cli.entry import explained
from tvm_npu.cli.files import write_csv
from tvm_npu.cli.shown import one_line, shown
from tvm_npu.cli.tables import Column, make_table, print_tables
from tvm_npu.cli.terminal import open_terminal
from tvm_npu.errors import AccuracyError
from tvm_npu.sim.compiled import cache

EVIL = "a\x1b[31mb\x07\r\nc\u202ed"
ESCAPED = r"a\x1b[31mb\x07\r\nc\u202ed"


def test_what_steers_a_terminal_is_escaped() -> None:
    assert shown(EVIL) == ESCAPED and shown("é 漢 x") == "é 漢 x"
    assert one_line("a\n\x1bb") == r"a \x1bb"
    assert explained(AccuracyError(f"layer {EVIL}")) == r"layer a\x1b[31mb\x07 c\u202ed"


def test_tables_and_lines_hold_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = open_terminal()
    terminal.out.print(f"model {EVIL}")
    columns = [Column("layer", (EVIL,), name=True), Column("why", (EVIL,), prose=True)]
    print_tables(columns, terminal.out)
    terminal.out.print(make_table(columns, 80))
    terminal.note(EVIL)
    out, err = capsys.readouterr()
    assert out.count(ESCAPED) == 4 and not set(out + err) & set("\x1b\x07\r\u202e")


def test_uncached_machine_code_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    cache._say_that_nothing_is_kept.cache_clear()
    try:
        with open_terminal().warnings_as_notes(everybody=False):
            cache._say_that_nothing_is_kept()
    finally:
        cache._say_that_nothing_is_kept.cache_clear()
    assert "no folder for machine code can be written" in capsys.readouterr().err


def test_rows_of_csv_are_lines_and_no_formulas(tmp_path: Path) -> None:
    names = [EVIL, "=1+1", "+a", "-a", "@a", "\t=1", "a=b", "plain, quoted"]
    write_csv(tmp_path / "rows.csv", [{"name": name, "low": -1.5} for name in names])
    assert len((tmp_path / "rows.csv").read_bytes().splitlines()) == 1 + len(names)
    with (tmp_path / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [
        ESCAPED, "'=1+1", "'+a", "'-a", "'@a", r"\t=1", "a=b", "plain, quoted",
    ]  # fmt: skip
    assert {row["low"] for row in rows} == {"-1.5"}
