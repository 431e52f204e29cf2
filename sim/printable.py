"""Texts of others (names in models, messages about them) as they may stand in a terminal or a line
of a file."""

from __future__ import annotations


def shown(text: str, kept: str = "") -> str:
    """``text`` with escapes in place of what steers a terminal or ends a line, but for ``kept``."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one == " " or one in kept else repr(one)[1:-1] for one in text
    )


def one_line(text: str) -> str:
    """``text`` as one line."""
    return shown(" ".join(text.split()))
