"""The output of commands: JSON and YAML for programs, tables and fields for people, escaped log lines.

msgspec and PyYAML are imported when they are used, so that importing this module costs little.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, TextIO

from tfjob_controller.client.text import TextTable, fold, one_line
from tfjob_controller.kubectl.command import JSON, PROGRAM, YAML
from tfjob_controller.util.terminal import print_line, print_text, visible
from tfjob_controller.util.text import CONTROL_CHARACTERS, escape
from tfjob_controller.util.yamlengine import safe_dumper

if TYPE_CHECKING:
    from tfjob_controller.client.job import Job

# SGR parameters of ECMA-48 for colours, bold and the like; 8, which conceals text, is none of them.
_COLOUR = r"[34]8[;:](?:5|2(?:[;:][0-9]{1,3}){2})[;:][0-9]{1,3}"
_ATTRIBUTE = rf"(?:{_COLOUR}|0?[0-79]|[2349][0-79]|10[0-7])"
_ATTRIBUTES = rf"\[(?:{_ATTRIBUTE}(?:[;:]{_ATTRIBUTE})*)?m"
# All control characters and escape sequences except those, tabs and carriage returns, which progress bars need.
_CONTROL_BUT_COLOURS = re.compile(rf"\x1b(?!{_ATTRIBUTES})|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f{CONTROL_CHARACTERS}]")
# Bytes that are not valid UTF-8 have no effect on a terminal; they pass unchanged.
_ENCODING = ("utf-8", "surrogateescape")

_BOLD, _CYAN, _GREEN, _YELLOW, _BOLD_RED = "1", "36", "32", "33", "1;31"
_STYLES = {
    "Running": _CYAN,
    "Succeeded": _GREEN,
    "Done": _GREEN,
    "Failed": _BOLD_RED,
    "Warning": _YELLOW,
    "Creating": _YELLOW,
    "CleanUp": _YELLOW,
}


def print_value(value: Any, output: str) -> int:
    """Print a value that msgspec can encode, as JSON or YAML; returns the exit code."""
    import msgspec

    body = msgspec.json.encode(value)
    if output == JSON:
        for line in msgspec.json.format(body, indent=2).decode().split("\n"):
            print_line(visible(line, _json_escape))
    else:
        print_text(to_yaml(msgspec.json.decode(body)))
    return 0


def _json_escape(character: str) -> str:
    return json.dumps(character)[1:-1]


def is_for_programs(output: str) -> bool:
    return output in (JSON, YAML)


def to_yaml(value: Any) -> str:
    import yaml

    return str(yaml.dump(value, Dumper=safe_dumper(), sort_keys=False, default_flow_style=False, width=120))


def write_utf8(*streams: TextIO) -> None:
    """Make streams write UTF-8 with plain newlines, as kubectl does on every system.

    Windows gives a pipe the code page of the machine, which lacks characters that messages of jobs contain.
    """
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def print_notice(message: str) -> None:
    """Print one line to standard error, beside the answer."""
    print_line(one_line(message), sys.stderr)


def print_error(message: str) -> None:
    """Print one line to standard error: the error that ends the command."""
    print_notice(f"{PROGRAM}: {message}")


def command_for(job: Job, command: str) -> str:
    """A command line about this job, for messages that name the next step."""
    return f"{PROGRAM} {command} {job.kind}/{job.name} -n {job.namespace}"


def is_coloured(out: IO[str]) -> bool:
    """Whether colours may be written; any NO_COLOR but the empty one forbids them (https://no-color.org)."""
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Screen:
    """Prints for people: folded and coloured on a terminal, one unpadded line per row elsewhere.

    `out` is standard output and `width` that of the terminal unless they are given.
    """

    def __init__(self, out: IO[str] | None = None, *, width: int | None = None) -> None:
        self._out = out or sys.stdout
        self._width = shutil.get_terminal_size().columns if width is None and self._out.isatty() else width
        self._has_colours = is_coloured(self._out)

    def heading(self, text: str) -> None:
        self._print("", *(self._styled(line, _BOLD) for line in self._folded(text)))

    def line(self, text: str) -> None:
        self._print(*self._folded(text))

    def fields(self, fields: Mapping[str, str]) -> None:
        """Names and values; those without a value are left out."""
        rows = [(name, value) for name, value in fields.items() if value]
        if rows:
            self._print(
                *TextTable(None, rows).lines(self._width, lambda _, column, text: self._styled_value(text, column))
            )

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]], *, with_headers: bool = True) -> None:
        first = 0 if with_headers else 1
        table = TextTable(headers if with_headers else None, rows)
        self._print(*table.lines(self._width, lambda line, _, text: self._styled_value(text, line + first)))

    def _folded(self, text: str) -> list[str]:
        return fold(one_line(text), self._width) if self._width else [one_line(text)]

    def _styled_value(self, text: str, index: int) -> str:
        """The text in the style of its value; index 0 is the name of a field or column."""
        return self._styled(text, _STYLES.get(text, "") if index else _BOLD)

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if style and self._has_colours else text

    def _print(self, *lines: str) -> None:
        self._out.write("".join(f"{line}\n" for line in lines))


def escape_terminal_controls(line: bytes) -> bytes:
    """A line of a log with control characters and escape sequences except colours made visible.

    Colours end with the line, so that no line changes how the next one, and its prefix, look.
    """
    shown = _CONTROL_BUT_COLOURS.sub(lambda match: escape(match[0]), line.decode(*_ENCODING))
    return (shown if "\x1b" not in shown else f"{shown}\x1b[0m").encode(*_ENCODING)


def text_after_carriage_return(line: bytes) -> bytes:
    """The part of a line that its program did not overwrite; a prefix before the line would be overwritten as well."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]
