"""Sphinx's settings for the site: `make docs`. It is built, and read, without a network."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

from sphinx.application import Sphinx

from docsite import navigation

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "docs" / "README.md"
SITE = {"docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"}

_setup = ConfigParser()
_setup.read(ROOT / "setup.cfg", "utf-8")

project = "tfjob-controller"
version = release = _setup["metadata"]["version"]
html_title = f"{project} {version}"
html_show_copyright = False

extensions = ["myst_parser"]
# The whole tree is the source, so that links from page to page are the same here and on a forge.
root_doc = "docs/README"
source_suffix = {".md": "markdown"}
exclude_patterns = sorted(path.name for path in ROOT.iterdir() if path.name not in SITE)

myst_heading_anchors = 4
highlight_language = "text"
# Shortened manifests (`template: …`) are no YAML; what they are is held by tests of their own.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
templates_path = ["templates"]
html_additional_pages = {"index": "redirect.html"}
html_use_index = False
html_copy_source = False
html_show_sphinx = False


def adapt(_: Sphinx, name: str, source: list[str]) -> None:
    page = ROOT / f"{name}.md"
    text = navigation.without_folders(source[0], page.parent)
    # The page of the repository itself is read for its links, and is in no navigation.
    head = "---\norphan: true\n---\n" if page == ROOT / "README.md" else ""
    source[0] = head + navigation.with_branches(text, navigation.branches(HOME, page))


def setup(app: Sphinx) -> None:
    app.connect("source-read", adapt)
