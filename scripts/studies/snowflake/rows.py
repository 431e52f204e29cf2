"""The measurements as flat rows, table by table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from studies.shared.networks import NetworkFacts
from studies.snowflake.instructions import Lengths, lengths_of
from studies.snowflake.measuring import Measured, Missing
from studies.snowflake.published import (
    FIGURE_7,
    MAX_POOL_EXAMPLE,
    NETWORKS,
    TABLE_1_MS,
    TABLE_2,
    TABLE_3,
    TRANSPOSED_CONV_EXAMPLE,
    ZC706,
)
from studies.snowflake.variants import (
    AFTER,
    BEFORE,
    DEFAULT,
    EVERY_STEP,
    EXACT,
    KEPT,
    REUSE,
    WITHOUT_A_PASS,
    Variant,
)
from studies.snowflake.work import (
    BOARD,
    FAST_MEMORY,
    MAX_POOL,
    NETWORK_MACHINE,
    PROTOTYPE,
    SCALED,
    TRANSPOSED_CONV,
    cell_name,
)

Key = tuple[str, str, str]
"""Model or layer, machine, variant."""


@dataclass(frozen=True)
class Found:
    """Everything that was measured, for the tables that were asked for."""

    tables: tuple[str, ...]
    measured: Mapping[Key, Measured | Missing]
    networks: Mapping[str, NetworkFacts]

    def of(self, subject: str, machine: str, variant: Variant = DEFAULT) -> Measured | None:
        """None where it was not asked for or could not be compiled."""
        found = self.measured.get((subject, machine, variant.name))
        return found if isinstance(found, Measured) else None

    @property
    def missing(self) -> dict[Key, str]:
        return {
            key: one.reason for key, one in self.measured.items() if isinstance(one, Missing)
        }


@dataclass(frozen=True)
class Row:
    """``subject`` is a model or, with ``is_layer``, a layer. ``paper``, ``simulated`` and
    ``predicted`` are milliseconds; of table 2, where ``variant`` says what is counted, percent of
    the traces, units of 64 bytes, or words. ``efficiency`` is a fraction of 1."""

    table: str
    subject: str
    is_layer: bool
    machine: str
    variant: str
    paper: float | None
    simulated: float
    predicted: float | None
    efficiency: float | None
    required_gbs: float | None
    achieved_gbs: float | None
    bytes: int

    def plain(self) -> dict[str, Any]:
        """For JSON: the subject under ``model`` or ``layer``."""
        values = asdict(self)
        kind = "layer" if values.pop("is_layer") else "model"
        subject, table = values.pop("subject"), values.pop("table")
        return {"table": table, kind: subject, **values}


def rows_of(found: Found) -> list[Row]:
    """All rows, in the order of the tables."""
    makers = {
        "3": _table_3, "figure5": _figure_5, "2": _table_2, "figure6": _figure_6,
        "figure7": _figure_7, "zc706": _zc706, "passes": _passes, "exact": _exact, "1": _table_1,
    }  # fmt: skip
    return [row for table in found.tables for row in makers[table](found)]


def _row(
    found: Found, table: str, subject: str, machine: str, variant: Variant,
    paper: float | None = None, *, is_layer: bool = False,
) -> Iterator[Row]:  # fmt: skip
    """None where there is no measurement."""
    one = found.of(subject, machine, variant)
    if one is None:
        return
    expected = one.expected_cycles
    yield Row(
        table, subject, is_layer, machine, variant.name, paper, one.simulated_ms, one.predicted_ms,
        one.efficiency, one.gb_per_s(expected) if expected else None, one.gb_per_s(one.cycles),
        one.moved_bytes,
    )  # fmt: skip


def _table_1(found: Found) -> Iterator[Row]:
    for (cell, hidden), paper in TABLE_1_MS.items():
        name = cell_name(cell, hidden)
        for variant in (EVERY_STEP, KEPT):
            yield from _row(found, "1", name, FAST_MEMORY, variant, paper)


def _table_2(found: Found) -> Iterator[Row]:
    for model in NETWORKS:
        one = found.of(model, NETWORK_MACHINE)
        if one is None:
            continue
        ours, paper = lengths_of(one), asdict(TABLE_2[model])
        for name, value in asdict(ours).items():
            yield Row(
                "2", model, False, NETWORK_MACHINE, VARIANT_OF[name], paper[name], value, None,
                one.efficiency, None, None, one.moved_bytes,
            )  # fmt: skip


VARIANT_OF = {
    "indp": "indp_percent",
    "coop": "coop_percent",
    "load": "ld_units",
    "trace": "mac_words",
    "store": "st_units",
}
"""Columns of Table 2 by what their rows are called."""


def _table_3(found: Found) -> Iterator[Row]:
    for one in TABLE_3:
        name = one.layer.name
        yield from _row(found, "3", name, PROTOTYPE, DEFAULT, one.auto_ms, is_layer=True)


def _figure_5(found: Found) -> Iterator[Row]:
    for machine in SCALED:
        for model in NETWORKS:
            yield from _row(found, "figure5", model, machine, DEFAULT)


def _figure_6(found: Found) -> Iterator[Row]:
    for model in NETWORKS:
        for variant in REUSE:
            yield from _row(found, "figure6", model, NETWORK_MACHINE, variant)


def _figure_7(found: Found) -> Iterator[Row]:
    for layer in FIGURE_7:
        yield from _row(found, "figure7", layer.name, NETWORK_MACHINE, DEFAULT, is_layer=True)


def _zc706(found: Found) -> Iterator[Row]:
    for model, frames in ZC706.items():
        yield from _row(found, "zc706", model, BOARD, DEFAULT, 1000 / frames.per_second)


def _passes(found: Found) -> Iterator[Row]:
    for model in NETWORKS:
        for variant in (DEFAULT, *WITHOUT_A_PASS):
            yield from _row(found, "passes", model, NETWORK_MACHINE, variant)
    examples = (
        (MAX_POOL, PROTOTYPE, MAX_POOL_EXAMPLE),
        (TRANSPOSED_CONV, NETWORK_MACHINE, TRANSPOSED_CONV_EXAMPLE),
    )
    for layer, machine, paper in examples:
        for variant, time in ((BEFORE, paper.before_ms), (AFTER, paper.after_ms)):
            yield from _row(found, "passes", layer, machine, variant, time, is_layer=True)


def _exact(found: Found) -> Iterator[Row]:
    for model in NETWORKS:
        for variant in (DEFAULT, EXACT):
            yield from _row(found, "exact", model, NETWORK_MACHINE, variant)


def lengths_by_model(found: Found) -> dict[str, Lengths]:
    """Of the networks that table 2 has."""
    measured = {model: found.of(model, NETWORK_MACHINE) for model in NETWORKS}
    return {model: lengths_of(one) for model, one in measured.items() if one is not None}


def wrong_rows(measured: Mapping[Key, Measured | Missing]) -> Sequence[str]:
    """Measurements with bits off, or that the race checker faults, in words."""
    return [
        f"{', '.join(key)}: {one.bits_off} elements differ from the reference, {one.hazards} races"
        for key, one in measured.items()
        if isinstance(one, Measured) and (one.bits_off or one.hazards)
    ]
