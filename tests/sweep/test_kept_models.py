"""Stores of sweeps from other people: what is no model or no outcome is refused; nothing runs."""

from __future__ import annotations

import os
import pickle
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import make_dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.runtime.networks import network
from tvm_npu.codegen.graph.scale import Scale
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.whole_files import write_whole
from tvm_npu.sweep import SweepError, preparations
from tvm_npu.sweep import store as sweep_store
from tvm_npu.sweep.kept_models import _array, _made, model_from_bytes, model_to_bytes
from tvm_npu.sweep.kept_types import check_fields
from tvm_npu.sweep.models import ModelSource, SweptModel, SweptRegion
from tvm_npu.sweep.outcome import Outcome
from tvm_npu.sweep.store import FILE, Store


def kept() -> SweptModel:
    graph, samples = network()
    ranges = calibrate(graph, [{"x": samples, "y": samples[::-1]}])
    inputs = (samples, samples[:, ::-1], np.asfortranarray(samples))
    return SweptModel("m", "0" * 64, (SweptRegion(graph, ranges, inputs, 3, 5),), 5, 0.5, 3)


def test_what_is_kept_comes_back() -> None:
    model = kept()
    found = model_from_bytes(model_to_bytes(model))
    assert (found.name, found.macs, found.npu_mac_share) == ("m", 5, 0.5)
    region, given = found.regions[0], model.regions[0]
    assert region.graph.shapes == given.graph.shapes and region.ranges == given.ranges
    for one, other in zip(region.inputs, given.inputs, strict=True):
        assert np.array_equal(one, other) and one.dtype == other.dtype
        assert one.flags.writeable


def test_numbers_of_numpy_come_back() -> None:
    found = model_from_bytes(model_to_bytes(replace(kept(), npu_mac_share=np.float32(0.1))))
    assert found.npu_mac_share == np.float32(0.1)
    assert type(found.npu_mac_share) is np.float32


QUANTIZE = b"\x8c\x08quantize"
CHANGED = b"N}" + QUANTIZE + b"Ns\x86b0"
"""(None, {"quantize": None}), BUILD, POP."""


@pytest.mark.parametrize(
    "named",
    [b"ctvm_npu.codegen.graph.scale\nScale\n", b"ctvm_npu.sweep.kept_models\n_array\n"],
)
@pytest.mark.parametrize("change", [CHANGED, b"(" + QUANTIZE + b"Nd" + CHANGED])
def test_what_a_file_names_stays_as_it_is(named: bytes, change: bytes) -> None:
    """A pickle can set attributes of classes and functions in front of a good model."""
    before = dict(vars(Scale)), dict(vars(_array))
    data = model_to_bytes(kept())
    with pytest.raises(SweepError, match="operation [A-Z]+ is no part of a model"):
        model_from_bytes(data[:2] + named + change + data[2:])
    assert (dict(vars(Scale)), dict(vars(_array))) == before


@pytest.mark.parametrize(
    ("module", "name", "values", "message"),
    [
        ("tvm_npu.codegen.graph.scale", "Scale", {"shifts": ()}, "a scale has 0 shifts"),
        ("tvm_npu.codegen.graph.scale", "Scale", {"quantize": 1}, "argument 'quantize'"),
        ("tvm_npu.codegen.graph.scale", "Scale", {"shifts": 3}, "Scale.shifts is 3; expected tup"),
        ("tvm_npu.codegen.graph.scale", "Scale", {"shifts": ("1",)}, "Scale.shifts is tuple; exp"),
        ("tvm_npu.codegen.graph.scale", "dataclass", {}, "is no part of a model"),
        ("tvm_npu.codegen.graph.graph", "Scale", {"shifts": (1,)}, "is no part of a model"),
        ("tvm_npu.sweep.spec", "Scale", {"shifts": (1,)}, "is no part of a model"),
        ("tvm_npu.codegen.graph.scale", "Scale", [1], "no class and values"),
    ],
)
def test_objects_that_are_none(module: str, name: str, values: Any, message: str) -> None:
    with pytest.raises(SweepError, match=message):
        model_from_bytes(pickle.dumps(Call(_made, module, name, values)))


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("name", 3, "is 3; expected str"),
        ("name", None, "is NoneType; expected str"),
        ("digest", b"0", "is bytes; expected str"),
        ("macs", "5", "is '5'; expected int"),
        ("macs", 5.0, "is 5.0; expected int"),
        ("macs", True, "is True; expected int"),
        ("npu_mac_share", "0.5", "is '0.5'; expected float"),
        ("regions", (), None),
        ("regions", [], "is list; expected tuple"),
        ("regions", (3,), "is tuple; expected tuple"),
        ("regions", (Scale((1,)),), "is tuple; expected tuple"),
    ],
)
def test_fields_of_other_types(field: str, value: Any, expected: str | None) -> None:
    data = model_to_bytes(replace(kept(), **{field: value}))
    if expected is None:
        assert getattr(model_from_bytes(data), field) == value
        return
    with pytest.raises(SweepError, match=f"SweptModel.{field} {re.escape(expected)}"):
        model_from_bytes(data)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("images", 0, "0 images"), ("images", 1 << 40, f"{1 << 40} images"), ("macs", -1, "-1 MACs")],
)
def test_regions_of_counts_that_are_none(field: str, value: int, said: str) -> None:
    model = kept()
    object.__setattr__(model.regions[0], field, value)
    with pytest.raises(SweepError, match=f"a region has {said}"):
        model_from_bytes(model_to_bytes(model))


@pytest.mark.parametrize(
    ("hint", "fitting", "others"),
    [
        (int | None, (3, np.int8(3), None), ("3", 3.5, True)),
        (Literal[1, 2], (1, 2), (3, True, "1", 1.0)),
        (tuple[int, int], ((1, 2),), ((1,), (1, 2, 3), ("1", 2), [1, 2])),
        (tuple[str, ...], ((), ("a", "b")), (("a", 1), "ab", ["a"])),
        (dict[str, tuple[int, ...]], ({}, {"a": (1,)}), ({"a": 1}, {1: (1,)}, [])),
        (Mapping[str, float], ({"a": 1, "b": 0.5},), ({"a": "1"},)),
        (NDArray[np.float32], (np.zeros(2, np.float32),), ([0.0], 0.0)),
        (Any, (None, 3), ()),
    ],
)
def test_types_of_fields(hint: Any, fitting: tuple[Any, ...], others: tuple[Any, ...]) -> None:
    made = make_dataclass("Made", [("field", hint)])
    for value in fitting:
        check_fields(made, {"field": value})
    for value in others:
        with pytest.raises(ValueError, match="^Made.field is "):
            check_fields(made, {"field": value})


@pytest.mark.parametrize(
    "forged", [np.dtype("i4"), np.zeros(2), np.asfortranarray(np.zeros((2, 3))), np.float32(1)]
)
def test_insides_of_numpy_are_not_read(forged: Any) -> None:
    """A type whose flags deny that it holds objects makes addresses of bytes."""
    data = pickle.dumps(forged, protocol=pickle.HIGHEST_PROTOCOL)
    refused = r"(numpy\S+|operation (BUILD|BYTEARRAY8)) is no part of a model"
    with pytest.raises(SweepError, match=refused):
        model_from_bytes(data)


@pytest.mark.parametrize(
    ("dtype", "shape", "data", "message"),
    [
        ("O", (1,), bytes(8), "type 'O'; only numbers are kept"),
        ("i4,i4", (1,), bytes(8), "only numbers are kept"),
        ("<f4", (2, 3), bytes(20), r"an array \(2, 3\) of '<f4' has 20 bytes"),
        ("<f4", (-1, -2), bytes(8), r"an array has shape \(-1, -2\)"),
        ("<f4", (True,), bytes(4), "an array has shape"),
        (["<f4"], (1,), bytes(4), "no type, shape and bytes"),
        ("what", (1,), bytes(4), "cannot be read"),
    ],
)
def test_arrays_that_are_none(dtype: Any, shape: Any, data: Any, message: str) -> None:
    with pytest.raises(SweepError, match=message):
        model_from_bytes(pickle.dumps(Call(_array, dtype, shape, data)))


def test_files_of_another_format_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparations, "prepare", lambda *_: kept())
    source = ModelSource("m", b"", load_machine("nmp-4x8"), "int8")
    new = preparations.prepared(source, tmp_path)
    assert preparations.prepared(source, tmp_path).file == new.file
    monkeypatch.setattr(preparations, "FORMAT", 1)
    assert preparations.prepared(source, tmp_path).file != new.file


@pytest.mark.parametrize(
    "forged",
    [
        "", "[]", '["d", [["__init__", [1], true]]]', '["d", [["biases", ["1"], true]]]',
        '["d", [["biases", [1, 2, 3], true]]]', '["d", [["pool_input", [1], true]]]',
    ],
)  # fmt: skip
def test_questions_that_are_none(
    forged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparations, "prepare", lambda *_: kept())
    source = ModelSource("m", b"", load_machine("nmp-4x8"), "int8")
    preparations.prepared(source, tmp_path)
    (path,) = tmp_path.glob("*.asked")
    path.write_text(forged)
    with pytest.raises(SweepError, match="remove the folder's .asked files"):
        preparations.prepared(source, tmp_path)


class Call:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("function", [os.mkdir, write_whole, eval])
def test_nothing_is_called(function: Any, tmp_path: Path) -> None:
    target = tmp_path / "made"
    arguments: tuple[Any, ...] = (str(target),)
    if function is write_whole:
        arguments = (str(target), b"x")
    elif function is eval:
        arguments = (f"open({str(target)!r}, 'w')",)
    with pytest.raises(SweepError, match="is no part of a model"):
        model_from_bytes(pickle.dumps(Call(function, *arguments)))
    assert not target.exists()


def test_what_modules_of_models_import_is_not_called(tmp_path: Path) -> None:
    target = tmp_path / "made"
    named = b"\x80\x04ctvm_npu.codegen.program.format\nwrite_whole\n"
    with pytest.raises(SweepError, match="format.write_whole is no part of a model"):
        model_from_bytes(named + b"(V" + str(target).encode() + b"\nC\x01xtR.")
    assert not target.exists()


@pytest.mark.parametrize(
    "data", [b"", b"\x80\x05", pickle.dumps({"a": 1}), model_to_bytes(kept())[:-9]]
)
def test_what_is_no_model(data: bytes) -> None:
    with pytest.raises(SweepError, match="a model in the sweep's store"):
        model_from_bytes(data)


def test_no_room_is_made_for_what_is_not_there() -> None:
    """Python's reader would take 4 GB."""
    with pytest.raises(SweepError, match="LONG_BINPUT 268435455"):
        model_from_bytes(b"\x80\x05Nr\xff\xff\xff\x0f.")


@pytest.mark.parametrize("row", ["", "[1]", '{"cycles": "many"}', "[" * 9999])
def test_rows_that_are_no_outcome(row: str, tmp_path: Path) -> None:
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as database:
        database.execute("INSERT INTO results VALUES ('key', ?)", (row,))
    store = Store(tmp_path)
    with pytest.raises(SweepError, match="is no store of sweeps"):
        store.get("key")
    store.close()


def test_of_a_long_row_the_beginning_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The beginning is no outcome, and not parsed."""
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as database:
        for key, row in (("text", "[]," * 400_000), ("bytes", bytes(1 << 21))):
            database.execute("INSERT INTO results VALUES (?, ?)", (key, row))
    monkeypatch.setattr(sweep_store, "_OUTCOME", None)
    store = Store(tmp_path)
    for key in ("text", "bytes"):
        with pytest.raises(SweepError, match="an outcome of more than 1048576 characters"):
            store.get(key)
    store.close()


_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"


@pytest.mark.parametrize(
    "script",
    [
        f"DROP TABLE results; CREATE VIEW results AS {_ENDLESS} '' AS key, i AS outcome FROM n",
        f"CREATE TRIGGER t BEFORE INSERT ON results BEGIN {_ENDLESS} max(i) FROM n; END",
        "CREATE TRIGGER t AFTER INSERT ON results BEGIN SELECT RAISE(FAIL, 'no'); END",
        "DROP TABLE results; CREATE TABLE results (key TEXT, outcome AS (hex(zeroblob(9))))",
        "CREATE UNIQUE INDEX i ON results (outcome)",
    ],
)
def test_programs_in_stores_are_not_run(script: str, tmp_path: Path) -> None:
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as database:
        database.executescript(script)
    with pytest.raises(SweepError, match="and only the table 'results' is read; remove it"):
        Store(tmp_path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"dram_bytes": 1%s}' % ("0" * 400), "dram_bytes is 10+; it must be from 0 to 92233"),
        ('{"cycles": NaN}', "cycles is nan; it must be"),
        ('{"time_us": 1e999}', "time_us is inf; it must be"),
        ('{"macs": -1}', "macs is -1; it must be"),
        ('{"image_cycles": [[2, 5.0], [3, NaN]]}', "image_cycles is nan; it must be"),
    ],
)  # fmt: skip
def test_numbers_that_are_no_outcome(row: str, message: str, tmp_path: Path) -> None:
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as database:
        database.execute("INSERT INTO results VALUES ('key', ?)", (row,))
    with closing(Store(tmp_path)) as store, pytest.raises(SweepError, match=message):
        store.get("key")


def test_stores_that_cannot_be_opened_or_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / FILE).mkdir(parents=True)
    for folder in ("file", "folder"):
        with pytest.raises(SweepError, match="cannot open the store .*give a folder that can be"):
            Store(tmp_path / folder)
    with closing(Store(tmp_path)) as store:
        store._connection.execute("PRAGMA query_only = 1")
        with pytest.raises(SweepError, match="cannot write to the store .* 1 results are not kept"):
            store.put([("key", Outcome(fault="none"))])
