"""What a verification finds: the first place where a program and the reference part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tvm_npu.sim.traps import Place

Kind = Literal["value", "missing", "stray", "trap", "layer"]
WHAT: Mapping[Kind, str] = {
    "value": "stores wrong values",
    "missing": "never stores some values",
    "stray": "writes where another tensor lies",
    "trap": "stops the machine",
    "layer": "makes wrong values; the machine does not say which instruction",
}


@dataclass(frozen=True)
class Element:
    """One number of a tensor: indices, and what it is and should be, as the machine's integers and
    as real numbers."""

    tensor: str
    index: tuple[int, ...]
    found: int
    expected: int
    found_real: float
    expected_real: float


@dataclass(frozen=True)
class Divergence:
    """The first divergence. ``place`` is the instruction that shows it: the one that stores wrong
    values, or the one at which the machine stopped; where a store is missing, the next one of the
    layer behind it in memory (None: there is none). ``box`` are the elements of the tensor that it
    wrote, [first, end) by dimension. ``wrong`` of ``elements`` of the tensor differ when the layer
    ends. ``trap`` says how the run ended, if it did not end well, or of a stray store that hits no
    tensor what it hits."""

    kind: Kind
    layer: str
    layer_number: int | None
    place: Place | None
    element: Element | None = None
    box: tuple[tuple[int, int], ...] = ()
    wrong: int = 0
    elements: int = 0
    trap: str = ""

    def lines(self) -> Iterator[str]:
        """For people: what, where, both values."""
        of = f"layer {self.layer!r}" if self.layer else "the program's frame"
        yield f"{of} {WHAT[self.kind]}"
        if self.place is not None:
            behind = "before " if self.kind == "missing" else ""
            yield f"instruction: {behind}{self.place}"
        if self.box:
            spans = ", ".join(f"{first}:{end}" for first, end in self.box)
            yield f"tile: [{spans}] of {self.element.tensor if self.element else 'a tensor'}"
        if self.element is not None:
            one = self.element
            at = ", ".join(map(str, one.index))
            yield (
                f"first element: {one.tensor}[{at}] is {one.found} ({one.found_real:.6g}); the "
                f"reference has {one.expected} ({one.expected_real:.6g})"
            )
        if self.elements:
            yield f"wrong: {self.wrong:,} of {self.elements:,} elements"
        if self.trap:
            yield f"{'written' if self.kind == 'stray' else 'the run ends'}: {self.trap}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
