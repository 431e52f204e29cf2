"""Hooks of mkdocs: what lies beside docs/ (README, CHANGELOG ...) becomes part of the site."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "MIGRATING.md": "migrating.md",
    "LICENSE": "license.txt",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds them, their links turned to where pages lie in the site."""
    for name, page in PAGES.items():
        text = re.sub(r"(\]\()([^)#\s]+)", _turned, (ROOT / name).read_text("utf-8"))
        files.append(File.generated(config, page, content=text))
    return files


def _turned(link: re.Match[str]) -> str:
    return link[1] + PAGES.get(link[2], link[2].removeprefix("docs/"))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to what lies beside docs/, too. In tables of instructions ``tile[ROWS][COLUMNS]`` is
    text, not a link."""
    for name, inside in PAGES.items():
        markdown = markdown.replace(f"](../../{name}", f"](../{inside}")
    return markdown.replace("][", "]\\[") if page.file.src_uri.startswith("isa-") else markdown
