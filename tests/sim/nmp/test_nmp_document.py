from __future__ import annotations

from pathlib import Path

from tvm_npu.sim.nmp.document import nmp_document
from tvm_npu.sim.nmp.xnmp import NMP_ISA, DmaRegister, MacRegister

DOCUMENT = Path(__file__).parents[3] / "docs" / "isa-nmp.md"


def test_committed_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text("utf-8") == nmp_document(), (
        "run: python -m tvm_npu.sim.nmp.document docs/isa-nmp.md"
    )


def test_document_names_everything() -> None:
    text = nmp_document()
    for item in NMP_ISA.instructions:
        assert f"| `{item.mnemonic} {item.syntax}".rstrip() in text
        assert item.meaning and item.meaning.replace("|", "\\|") in text
    for register in (*MacRegister, *DmaRegister):
        assert register.meaning
        assert f"| {int(register)} | `{register.name}` | {register.meaning} |" in text
