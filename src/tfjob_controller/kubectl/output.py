"""What commands print: JSON and YAML for programs, tables for people. Heavy parts are loaded when they are used."""

from __future__ import annotations

import re
import sys
from datetime import datetime
from typing import Any

from tfjob_controller.client.text import age, one_line
from tfjob_controller.kubectl.arguments import JSON, YAML
from tfjob_controller.util.text import CONTROL_CHARACTERS, escape

# What JSON may hold as it is. In YAML it is escaped already.
_RULES = re.compile(f"[{CONTROL_CHARACTERS}]")


def print_value(value: Any, output: str) -> int:
    """A value that msgspec can encode, as JSON or YAML; returns the exit code."""
    import msgspec

    body = msgspec.json.encode(value)
    if output == JSON:
        print(_RULES.sub(_escaped, msgspec.json.format(body, indent=2).decode()))
    else:
        print(in_yaml(msgspec.json.decode(body)), end="")
    return 0


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def is_for_programs(output: str) -> bool:
    return output in (JSON, YAML)


def in_yaml(value: Any) -> str:
    import yaml

    return str(yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, default_flow_style=False, width=120))


def print_notice(words: str) -> None:
    """To the person, beside the answer, on one line whatever the words hold."""
    print(one_line(words), file=sys.stderr)


def screen() -> Any:
    """A `Screen` on standard output."""
    from tfjob_controller.kubectl.screen import Screen

    return Screen(sys.stdout)


def ago(moment: str, now: datetime) -> str:
    return f"{age(moment, now)} ago" if moment else ""


# Escape sequences but for colours. Tabs and carriage returns stay: progress is shown with them.
_RULES = re.compile(rf"\x1b(?!\[[0-9;:]*m)|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f{CONTROL_CHARACTERS}]")
# Bytes of no encoding are nothing to a terminal: they go through as they are.
_ENCODING = ("utf-8", "surrogateescape")


def escape_terminal_controls(line: bytes) -> bytes:
    """The line with such bytes to be seen, by their numbers."""
    return _RULES.sub(lambda match: escape(match[0]), line.decode(*_ENCODING)).encode(*_ENCODING)


def text_after_carriage_return(line: bytes) -> bytes:
    """What is left of a line that its program wrote over: a prefix before it would be written over, too."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]
