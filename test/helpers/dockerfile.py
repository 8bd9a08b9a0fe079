"""A Dockerfile's stages and steps, and its context without ignored files, as far as this project uses them."""

from __future__ import annotations

import json
import re
import shlex
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_CONTINUED = re.compile(r"\\\n(?:\s*#.*\n)*")
_VARIABLES_IN = ("FROM", "LABEL", "ENV", "COPY", "WORKDIR", "USER")


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction; `text` is all after its keyword."""

    keyword: str
    text: str

    def words(self, variables: Mapping[str, str]) -> list[str]:
        """Returns the words of the shell form, with variables replaced, or the elements of a JSON array."""
        if self.text.startswith("["):
            return [str(word) for word in json.loads(self.text)]
        filled = string.Template(self.text).safe_substitute(variables) if self.keyword in _VARIABLES_IN else self.text
        return shlex.split(filled)

    def pairs(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Returns the names and values of ENV, LABEL and ARG, without ARGs that have no value."""
        return {key: value for key, given, value in (word.partition("=") for word in self.words(variables)) if given}


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    base: str
    steps: tuple[Step, ...]

    def of(self, keyword: str) -> list[Step]:
        return [step for step in self.steps if step.keyword == keyword]


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """`arguments` are those before the first stage, with their defaults."""

    arguments: Mapping[str, str]
    stages: Mapping[str, Stage]


def read(path: Path) -> Dockerfile:
    arguments: dict[str, str] = {}
    stages: dict[str, list[Step]] = {}
    bases: dict[str, str] = {}
    name = ""
    for step in _steps(path.read_text()):
        if step.keyword == "FROM":
            bases_word, _, name = step.words(arguments)
            bases[name], stages[name] = bases_word, []
        elif name:
            stages[name].append(step)
        else:
            arguments |= step.pairs({})
    return Dockerfile(arguments, {name: Stage(name, bases[name], tuple(steps)) for name, steps in stages.items()})


def _steps(text: str) -> Iterator[Step]:
    for line in _CONTINUED.sub(" ", text).splitlines():
        if line.strip() and not line.startswith("#"):
            keyword, _, rest = line.partition(" ")
            yield Step(keyword, rest.strip())


def ignore_patterns(path: Path) -> list[str]:
    lines = (line.strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def is_ignored(path: str, patterns: Sequence[str]) -> bool:
    """Whether a file does not reach the build: the last pattern that fits it, or a folder above it, decides."""
    parts = path.split("/")
    prefixes = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    ignored = False
    for pattern in patterns:
        expression = _expression(pattern.removeprefix("!"))
        if any(expression.fullmatch(prefix) for prefix in prefixes):
            ignored = not pattern.startswith("!")
    return ignored


def _expression(pattern: str) -> re.Pattern[str]:
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(words.get(part) or re.escape(part) for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern)))


def context_files(root: Path, source: str, patterns: Sequence[str]) -> list[Path]:
    """Returns the files below `root` that `COPY source` copies, relative to `root`."""
    found = [root / source] if (root / source).is_file() else (root / source).rglob("*")
    relative = sorted(path.relative_to(root) for path in found if path.is_file())
    return [path for path in relative if not is_ignored(path.as_posix(), patterns)]
