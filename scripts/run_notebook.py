"""Runs docs/tutorials/notebook.ipynb and keeps what its cells show: `.venv/bin/python
scripts/run_notebook.py`. The tests run it as well, and compare with what was kept; cells with the
tag ``varies`` may show other digits elsewhere. Cells are plain Python: no kernel is needed."""

from __future__ import annotations

import ast
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "docs" / "tutorials" / "notebook.ipynb"

Cell = dict[str, Any]


def run_cells(cells: list[Cell]) -> Iterator[tuple[Cell, list[dict[str, Any]]]]:
    """Each cell of code with its outputs as nbformat 4 has them."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate((one for one in cells if one["cell_type"] == "code"), 1):
        written = StringIO()
        with redirect_stdout(written), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = _run("".join(cell["source"]), names)
        outputs: list[dict[str, Any]] = []
        if written.getvalue():
            text = written.getvalue().splitlines(keepends=True)
            outputs.append({"output_type": "stream", "name": "stdout", "text": text})
        if value is not None:
            outputs.append(
                {"output_type": "execute_result", "execution_count": number, "metadata": {},
                 "data": _shown(value)}
            )  # fmt: skip
        yield cell, outputs


def _run(source: str, names: dict[str, Any]) -> Any:
    """The value of a cell's last line where that is an expression."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def _shown(value: Any) -> dict[str, list[str]]:
    if hasattr(value, "_repr_html_"):
        return {"text/html": value._repr_html_().splitlines(keepends=True)}
    return {"text/plain": repr(value).splitlines(keepends=True)}


def main() -> int:
    logging.disable(logging.WARNING)
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    for number, (cell, outputs) in enumerate(run_cells(notebook["cells"]), 1):
        cell.update(outputs=outputs, execution_count=number)
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(text + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
