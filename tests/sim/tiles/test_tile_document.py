from __future__ import annotations

from pathlib import Path

from tvm_npu.sim.tiles.document import tile_document
from tvm_npu.sim.tiles.isa import TILE_ISA, TileRegister

DOCUMENT = Path(__file__).parents[3] / "docs" / "isa-tiles.md"


def test_committed_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text("utf-8") == tile_document(), (
        "run: python -m tvm_npu.sim.tiles.document docs/isa-tiles.md"
    )


def test_document_names_everything() -> None:
    text = tile_document()
    for item in TILE_ISA.instructions:
        assert f"| `{item.mnemonic} {item.syntax}".rstrip() in text
        assert item.meaning and item.meaning.replace("|", "\\|") in text
    for register in TileRegister:
        assert register.meaning
        assert f"| {int(register)} | `{register.name}` | {register.meaning} |" in text
