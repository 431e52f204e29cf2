"""The site works where its pages are opened from files: nothing is loaded, the search finds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("material", reason="the docs extra is not installed")
from mkdocs.commands.build import build  # noqa: E402
from mkdocs.config import load_config  # noqa: E402

from tests.browser import BROWSER, browser  # noqa: E402

ROOT = Path(__file__).parents[1]
LOADS = re.compile(
    r'<(?:script|img|iframe|source)\b[^>]*\bsrc="([^"]+)"|'
    r'<link\b[^>]*\brel="(?:stylesheet|preload|icon)"[^>]*\bhref="([^"]+)"'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without the reference from docstrings, which takes longest."""
    folder = tmp_path_factory.mktemp("site")
    plugins = ["search", "offline"]
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), plugins=plugins))
    return folder


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text("utf-8")
        assert LOADS.search(text), page
        for found in LOADS.finditer(text):
            address = found[1] or found[2]
            assert not re.match(r"https?:|//", address), (page, address)


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_the_search_finds_in_pages_that_are_opened_from_files(site: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as tab:
        for page in ("index.html", "tutorials/first-model.html"):
            tab.open(f"file://{site / page}")
            tab.run("document.querySelector('.md-search__input').focus()")
            tab.write("scratchpad")
            tab.wait("document.querySelectorAll('.md-search-result__link').length > 2")
            hit = tab.run("document.querySelector('.md-search-result__link').href")
            assert hit.startswith(f"file://{site}/")
            assert Path(re.split("[?#]", hit[len("file://") :])[0]).is_file()
            assert "scratchpad" in tab.run(
                "document.querySelector('.md-search-result__list').textContent.toLowerCase()"
            )
        assert [one for one in tab.complaints if "favicon" not in one] == []
