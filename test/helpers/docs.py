"""Objects in the pages of docs/, for tests that check them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster.crds import documents

DOCS = Path(__file__).resolve().parents[2] / "docs"

_YAML = re.compile(r"^```yaml[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Shown:
    """One object that a page shows."""

    page: str
    manifest: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.page}:{self.manifest['kind']}/{self.manifest['metadata']['name']}"


def shown(pages: str, *kinds: str, folder: Path = DOCS) -> list[Shown]:
    """Returns the objects of these kinds in the YAML blocks of all pages whose name matches, in order."""
    return [
        Shown(page.name, document)
        for page in sorted(folder.glob(pages))
        for block in _YAML.findall(page.read_text("utf-8"))
        for document in documents(block)
        if isinstance(document, dict) and document.get("kind") in kinds
    ]
