"""The samples carry their programs in ConfigMaps: this keeps manifest and program the same text.

In a manifest, a comment `# Generated from programs/NAME; …` stands above the key that holds the program as a literal
block. Only that block is written anew; all else in a sample is by hand.
"""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(
    r"(?P<head>^  # Generated from programs/(?P<program>[\w.]+);.*\n  [\w.]+: \|\n)(?P<body>(?:    .*\n|\n)*)",
    re.MULTILINE,
)


def render_sample(manifest: Path) -> str:
    """The manifest's text with the program files' present text in it."""

    def filled(match: re.Match[str]) -> str:
        program = (manifest.parent / "programs" / match["program"]).read_text(encoding="utf-8")
        return match["head"] + "".join(f"    {line}\n" if line else "\n" for line in program.splitlines())

    return _BLOCK.sub(filled, manifest.read_text(encoding="utf-8"))
