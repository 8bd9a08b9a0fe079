"""What commands print: JSON and YAML for programs, tables for people. Heavy parts are loaded when they are used."""

from __future__ import annotations

import re
import sys
from datetime import datetime
from typing import Any

from tfjob_controller.client.ages import age
from tfjob_controller.client.oneline import one_line
from tfjob_controller.kubectl.arguments import JSON, YAML
from tfjob_controller.util.text import CONTROL_CHARACTERS

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


def say(words: str) -> None:
    """To the person, beside the answer, on one line whatever the words hold."""
    print(one_line(words), file=sys.stderr)


def screen() -> Any:
    """A `Screen` on standard output."""
    from tfjob_controller.kubectl.screen import Screen

    return Screen(sys.stdout)


def ago(moment: str, now: datetime) -> str:
    return f"{age(moment, now)} ago" if moment else ""
