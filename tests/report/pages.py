"""What is on pages: their text and addresses, and what a browser makes of them."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

from tests.patience import PATIENCE_S

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


class Visible(HTMLParser):
    """Text by panel, and every address that the page refers to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.panel, self.text, self.addresses = "", {"": ""}, []
        self.inside: list[str] = []
        self.in_name = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.addresses += [v for k, v in attrs if k in ("src", "href") and v is not None]
        if found.get("role") == "tabpanel":
            self.panel = found["id"] or ""
            self.text[self.panel] = ""
        self.in_name = tag == "wbr"
        if tag in ("script", "style"):
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.text[self.panel] += " " * (not self.in_name) + data
            self.in_name = False


def dom_of(page: Path, part: str) -> str:
    """The page, opened at ``part``, after its scripts have run."""
    return subprocess.run(
        [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu",
         f"--user-data-dir={page.parent}", "--virtual-time-budget=20000", "--dump-dom",
         f"file://{page}#{part}"],
        capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    ).stdout  # fmt: skip
