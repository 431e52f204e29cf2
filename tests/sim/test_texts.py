"""Texts are bounded before they are parsed."""

from __future__ import annotations

import pytest

from tvm_npu.sim import texts
from tvm_npu.sim.texts import TextError, check_values, parse_toml


def test_values_are_counted_by_their_marks() -> None:
    for text in ('[1, {"a": 2}]', b'[1, {"a": 2}]'):
        check_values(text, 3)
        with pytest.raises(TextError, match=r"^3 values, by its marks , \[ \{; at most 2; help$"):
            check_values(text, 2, help_="; help")


def test_toml_is_bounded_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of nothing, headings of many parts and inline tables: all of them are objects."""
    most = texts.MOST_TOML_VALUES
    parse_toml("x = 1.5\n" + "\n" * most)
    monkeypatch.setattr(texts.tomllib, "loads", None)
    for text in (
        "x = [" + "[]," * most + "]",
        "".join(f"[a{number}{'.a' * 90}]\n" for number in range(most // 90)),
        "x = [" + "{a=1}," * (most // 2) + "]",
    ):
        with pytest.raises(TextError, match=f"[0-9]+ values.*; at most {most}; leave out"):
            parse_toml(text)
