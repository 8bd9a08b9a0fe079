"""Puts the programs of `manifests/samples/programs/` into the ConfigMaps of the samples.

A sample is one file that can be applied as it is; its program is an ordinary Python file that linters read. A line
`  NAME.py: |` in a sample marks where the program of that name belongs; what follows it, up to the next line that is
indented less, is replaced.
"""

from __future__ import annotations

import re
from pathlib import Path

SAMPLES = Path("manifests/samples")
_PROGRAM = re.compile(r"^  (?P<name>\w+\.py): \|\n(?:(?: {4}.*)?\n)*", re.MULTILINE)


def with_programs(sample: str, programs: Path) -> str:
    """The sample's text with each program as it is now."""

    def block(match: re.Match[str]) -> str:
        program = (programs / match["name"]).read_text()
        indented = "".join(f"    {line}" if line.strip() else line for line in program.splitlines(keepends=True))
        return f"  {match['name']}: |\n{indented}"

    return _PROGRAM.sub(block, sample)


def generate(root: Path) -> dict[Path, str]:
    """All samples that hold a program: path from the project's root → wanted text."""
    samples = sorted((root / SAMPLES).glob("*.yaml"))
    return {
        sample.relative_to(root): with_programs(sample.read_text(), root / SAMPLES / "programs") for sample in samples
    }
