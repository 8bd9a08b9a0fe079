"""What the pages of the docs show: blocks of code, objects in them, and commands with their output.

Commands are in shell blocks (```console with `$ ` prompts, ```sh, ```bash), in indented blocks whose first word is a
program, and in the text between backticks (`inline`). A command continues over lines that end with a backslash,
here-documents, loops, and any other line after which bash would not consider it complete.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from localcluster.crds import documents

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SHELLS = ("sh", "bash", "shell", "zsh")
CONSOLES = ("console", "shell-session")
# The first word of a command in a block without a language.
PROGRAMS = (
    *(
        "kubectl",
        "kubectl-tfjob",
        "tfjob-controller",
        ".venv/bin/tfjob-controller",
        ".venv/bin/python",
        "PYTHONPATH=hack",
    ),
    *("make", "pip", "python", "python3", "git", "docker", "kind", "minikube", "helm", "promtool", "curl", "cd", "cp"),
    *("mkdir", "export", "source", "for", "while", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
)

_FENCE = re.compile(r"^\s*(?P<mark>`{3,}|~{3,})\s*(?:\{[\w-]+\})?\s*(?P<language>[\w+-]*)(?P<more>.*)$")
_TITLE = re.compile(r"title=(\S+)")
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_PROMPT = "$ "


@dataclass(frozen=True, slots=True)
class Block:
    """Code of a page.

    `language` is empty for an indented block, `title` is the name of its file; lines count from 1.
    """

    language: str
    title: str
    line: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """One object that a page shows."""

    page: str
    manifest: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.page}:{self.manifest['kind']}/{self.manifest['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class Command:
    """`page` is its path in the repository; `shown` are the lines that follow it up to the next prompt."""

    page: str
    line: int
    text: str
    shown: tuple[str, ...] = ()
    inline: bool = False

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"

    @property
    def make_target(self) -> str:
        """The target of a make command; empty for other commands, and for make alone."""
        program, *arguments = self.text.partition("#")[0].split()
        targets = [word for word in arguments if "=" not in word and not word.startswith("-")]
        return targets[0] if program == "make" and targets else ""


def pages() -> list[str]:
    """Returns the pages that users and contributors read."""
    return ["README.md", "CONTRIBUTING.md", *sorted(str(path.relative_to(ROOT)) for path in DOCS.rglob("*.md"))]


def shown(pages: str, *kinds: str, folder: Path = DOCS) -> list[Shown]:
    """Returns the objects of these kinds in the YAML blocks of all pages whose name matches, in order."""
    return [
        Shown(page.name, document)
        for page in sorted(folder.glob(pages))
        for block in blocks(page.read_text("utf-8"))
        if block.language == "yaml"
        for document in documents("\n".join(block.lines))
        if isinstance(document, dict) and document.get("kind") in kinds
    ]


def commands(page: str) -> list[Command]:
    """Returns the commands of the page's blocks, in order."""
    text = (ROOT / page).read_text("utf-8")
    return [command for block in blocks(text) for command in _commands_of(page, block)]


def section(page: str, heading: str) -> list[Command]:
    """Returns the commands below a heading, up to the next heading."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    begin = lines.index(heading) + 1
    end = next((number for number, line in enumerate(lines[begin:], begin) if re.match("#+ ", line)), len(lines))
    return [command for command in commands(page) if begin < command.line <= end]


def inline_commands(page: str) -> list[Command]:
    """Returns the commands between backticks in the text: a program and at least one more word."""
    return [
        Command(page, number, text, inline=True)
        for number, line in _prose((ROOT / page).read_text("utf-8"))
        for text in _INLINE.findall(line.replace("\\|", "|"))
        if " " in text and text.partition(" ")[0] in PROGRAMS
    ]


def blocks(text: str) -> Iterator[Block]:
    """Yields fenced and indented blocks."""
    lines = text.splitlines()
    position = 0
    while position < len(lines):
        fence = _FENCE.match(lines[position])
        if fence:
            end = _closing(lines, position + 1, fence["mark"])
            title = _TITLE.search(fence["more"])
            body = _dedented(lines[position + 1 : end])
            yield Block(fence["language"] or "text", title[1] if title else "", position + 2, body)
            position = end + 1
        elif lines[position].startswith("    ") and (position == 0 or not lines[position - 1].strip()):
            end = _end_of_indented(lines, position)
            yield Block("", "", position + 1, _dedented(lines[position:end]))
            position = end
        else:
            position += 1


def is_command_block(block: Block) -> bool:
    """Whether a block has commands: without a language, if its first line begins with a program or a prompt."""
    if block.language in (*SHELLS, *CONSOLES):
        return True
    first = next((line for line in block.lines if line.strip() and not line.startswith("#")), "")
    is_told = block.language not in ("", "text")
    return not is_told and (first.startswith(_PROMPT) or first.split(" ")[0] in PROGRAMS)


@functools.cache
def is_complete(text: str) -> bool:
    """Whether bash would run the text instead of waiting for more lines."""
    if text.endswith("\\"):
        return False
    done = subprocess.run(["bash", "-n", "-c", text], capture_output=True, check=False)
    return done.returncode == 0 and not done.stderr


def _commands_of(page: str, block: Block) -> list[Command]:
    """With prompts, what follows a command is its output. A test of the exit code belongs to the command before it."""
    if not is_command_block(block):
        return []
    has_prompts = block.language in CONSOLES or any(line.startswith(_PROMPT) for line in block.lines)
    result: list[Command] = []
    for number, line in enumerate(block.lines, block.line):
        last = result[-1] if result else None
        if has_prompts and line.startswith(_PROMPT):
            result.append(Command(page, number, line.removeprefix(_PROMPT)))
        elif last and not last.shown and (not is_complete(last.text) or line.startswith("case $?")):
            result[-1] = replace(last, text=f"{last.text}\n{line.removeprefix('> ') if has_prompts else line}")
        elif last and has_prompts:
            result[-1] = replace(last, shown=(*last.shown, line))
        elif not has_prompts and line.strip() and not line.lstrip().startswith("#"):
            result.append(Command(page, number, line))
    return result


def _closing(lines: list[str], position: int, mark: str) -> int:
    while position < len(lines) and lines[position].strip() != mark:
        position += 1
    return position


def _end_of_indented(lines: list[str], position: int) -> int:
    while position < len(lines) and lines[position].startswith("    "):
        position += 1
    return position


def _dedented(lines: list[str]) -> tuple[str, ...]:
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return tuple(line[margin:] for line in lines)


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Yields the numbered lines outside of blocks."""
    inside = {number for block in blocks(text) for number in range(block.line, block.line + len(block.lines))}
    for number, line in enumerate(text.splitlines(), 1):
        if number not in inside and not _FENCE.match(line):
            yield number, line
