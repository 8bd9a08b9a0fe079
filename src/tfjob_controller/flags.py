"""Flags as fields: how a dataclass becomes the options of a command.

Theory of operation. The fields of a dataclass are a table: each has its type, its default and, through `option`, its
help and how its text is read. The command line, the environment and docs/reference are made from it. A value comes from
the flag, else from the environment (`TFJOB_CONTROLLER_` and the flag's name in capitals), else it is the default.

Nothing here does any I/O, and nothing but the standard library and `util` is imported: `--help` is fast.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tfjob_controller.util.commandline import UsageError
from tfjob_controller.util.timestamps import parse_duration

OptionsT = TypeVar("OptionsT")

ENV_PREFIX = "TFJOB_CONTROLLER_"

# What turns a server off.
OFF = "0"

_METADATA = "option"
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class BindAddress:
    """Where a server listens: a host (empty: all interfaces) and a port (0: any free one)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class ValueType:
    """How a value is written. `read` raises ValueError, with the rest of "--flag X ...", for what it does not take."""

    name: str
    read: Callable[[str], Any]
    is_switch: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table. `default` is the value; `default_text` is how a person would write it."""

    field: str
    kind: ValueType
    default: Any
    default_text: str
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.field.replace("_", "-")

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.field.upper()


def _text(value: str) -> str:
    return value


def _switch(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered not in ("true", "false", "1", "0"):
        raise ValueError("must be true or false")
    return lowered in ("true", "1")


def _count(value: str) -> int:
    if not re.fullmatch(r"\d{1,6}", value) or int(value) < 1:
        raise ValueError("must be a whole number from 1 to 999999")
    return int(value)


_BYTES = re.compile(r"([1-9]\d{0,11})([KMGT]i)?")
_UNITS = {None: 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def _bytes(value: str) -> int:
    match = _BYTES.fullmatch(value.strip())
    if match is None:
        raise ValueError("must be a size above zero such as 1Gi, 500Mi or a number of bytes")
    return int(match[1]) * _UNITS[match[2]]


def _rate(value: str) -> float:
    try:
        rate = float(value)
    except ValueError:
        rate = float("nan")
    if not -1.0 <= rate < 1e6:
        raise ValueError("must be a number; 0 or -1 for no limit")
    return rate


def _duration(value: str) -> float:
    with contextlib.suppress(ValueError):
        if (seconds := parse_duration(value)) > 0:
            return seconds
    raise ValueError("must be a time above zero such as 15s, 500ms or 2m")


def _address(value: str) -> BindAddress | None:
    if value == OFF:
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535:
        raise ValueError("must be host:port, :port for all interfaces, or 0 for off")
    return BindAddress(host.strip("[]"), int(port))


def _loopback(value: str) -> BindAddress | None:
    address = _address(value)
    if address is not None and not address.is_loopback:
        raise ValueError(
            "must be on loopback, such as 127.0.0.1:8082: it shows the internal state of the process to any client"
        )
    return address


def _namespace(value: str) -> str:
    if value and not _DNS_LABEL.fullmatch(value):
        raise ValueError("must be the name of one namespace, or empty for all")
    return value


def choice(*choices: str) -> ValueType:
    def read(value: str) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value

    return ValueType("|".join(choices), read)


def choices(*values: str) -> ValueType:
    """Several of the values in any case, separated by commas; none for an empty text."""
    by_lower_case = {value.lower(): value for value in values}

    def read(text: str) -> tuple[str, ...]:
        given = dict.fromkeys(filter(None, (value.strip().lower() for value in text.split(","))))
        if not given.keys() <= by_lower_case.keys():
            raise ValueError(f"must be a list of {', '.join(values)}")
        return tuple(by_lower_case[value] for value in given)

    return ValueType("list", read)


TEXT = ValueType("text", _text)
FILE = ValueType("file", _text)
SWITCH = ValueType("true|false", _switch, is_switch=True)
COUNT = ValueType("number", _count)
BYTES = ValueType("size", _bytes)
RATE = ValueType("number", _rate)
DURATION = ValueType("duration", _duration)
ADDRESS = ValueType("address", _address)
LOOPBACK_ADDRESS = ValueType("address", _loopback)
NAMESPACE = ValueType("namespace", _namespace)


def option(kind: ValueType, default: str, help_: str) -> Any:
    metadata = {_METADATA: (kind, default, help_)}
    return dataclasses.field(default=kind.read(default), metadata=metadata)


def options_of(options: type[Any]) -> tuple[Option, ...]:
    """The rows of a dataclass whose fields were made with `option`."""
    return tuple(
        Option(field.name, kind, field.default, text, help_)
        for field in dataclasses.fields(options)
        for kind, text, help_ in [field.metadata[_METADATA]]
    )


def read_options(options: type[OptionsT], flags: Mapping[str, str], environ: Mapping[str, str]) -> OptionsT:
    """The options that the given flags (by field name) and environment set. Raises UsageError.

    A variable that is set to nothing counts as unset. Unknown variables with our prefix are not ours to judge:
    Kubernetes makes some for every Service (`TFJOB_CONTROLLER_PORT`).
    """
    values: dict[str, Any] = {}
    for option in options_of(options):
        if option.field in flags:
            values[option.field] = _read(option, flags[option.field], option.flag)
        elif environ.get(option.env):
            values[option.field] = _read(option, environ[option.env], option.env)
    return options(**values)


def _read(option: Option, text: str, source: str) -> Any:
    try:
        return option.kind.read(text)
    except ValueError as error:
        raise UsageError(f"{source} {error}, not {text!r}") from None
