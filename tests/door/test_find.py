"""Which door is found, by the folders of the installed TVM alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tvm_npu.door import find
from tvm_npu.errors import DoorError, NpuError


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    find.door.cache_clear()
    yield
    find.door.cache_clear()


def installed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    spec = ModuleSpec("tvm", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr(find, "find_spec", lambda name: spec)


def test_without_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tvm", None)
    with pytest.raises(
        DoorError, match=r"this needs tvm: in the checkout, pip install '.\[relay\]' .TVM 0.19. or"
    ):
        find.door()


def test_a_tvm_that_nobody_knows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nnvm").mkdir()
    installed(monkeypatch, tmp_path)
    with pytest.raises(
        NpuError, match=f"the installed TVM .in {tmp_path}. has none of relay, relax"
    ):
        find.door()


def test_a_tvm_with_both_gets_the_relay_door() -> None:
    assert list(find.DOORS) == ["relay", "relax"]  # TVM 0.19 has a folder `relax`, too


def test_the_first_door_that_fits_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "json").mkdir()
    installed(monkeypatch, tmp_path)
    doors = {"nowhere": "no.such:thing", "json": "tests.door.test_find:DOOR"}
    monkeypatch.setattr(find, "DOORS", doors)
    assert find.door() is sys.modules["tests.door.test_find"].DOOR


DOOR = object()
