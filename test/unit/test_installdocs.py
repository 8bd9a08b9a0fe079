"""The pages on installing name all that can be installed, and nothing else."""

from __future__ import annotations

import re

import pytest

from helpers.docs import DOCS
from helpers.docscommands import commands, pages
from helpers.kubectl import MANIFESTS

INSTALL = (DOCS / "install.md").read_text("utf-8").partition("\n## Which overlay\n")[2].partition("\n## ")[0]
# Those of other repositories follow `.git/`.
PATHS = {
    path: page.name
    for page in (*DOCS.glob("**/*.md"), DOCS.parent / "README.md", DOCS.parent / "CHANGELOG.md")
    for path in re.findall(r"(?<!\.git/)manifests/(?:overlays|components|base)[\w./-]*[\w-]", page.read_text("utf-8"))
}


def table(heading: str) -> set[str]:
    rows = INSTALL.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return set(re.findall(r"^\| `([\w-]+)` \|", rows, re.MULTILINE))


@pytest.mark.parametrize(("heading", "folder"), [("overlay", "overlays"), ("component", "components")])
def test_the_page_names_every_overlay_and_component(heading: str, folder: str) -> None:
    assert table(heading) == {path.parent.name for path in (MANIFESTS / folder).glob("*/kustomization.yaml")}


def test_every_manifest_that_a_page_names_is_there() -> None:
    assert {path: page for path, page in PATHS.items() if not (MANIFESTS.parent / path).exists()} == {}


def applied(page: str) -> list[str]:
    """The overlays that the commands of the page install, in their order."""
    texts = "\n".join(each.text for each in commands(page))
    return re.findall(r"^kubectl apply .*-k (manifests/overlays/\S+|production)", texts, re.MULTILINE)


def test_a_page_that_installs_an_overlay_installs_the_crds_first() -> None:
    first = {page: overlays[0] for page in pages() if (overlays := applied(page))}
    assert set(first.values()) == {"manifests/overlays/crds"}, first
