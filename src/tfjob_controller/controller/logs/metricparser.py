"""Finds metrics in the log of a training program: pairs `name=value`, of which the last one of each name counts.

Theory of operation. A log arrives in pieces of any size. Only complete lines are parsed, so that no number is read
before all of its digits have arrived. Each piece is searched backwards for the name, because only the last pair is
needed; the cost depends on the bytes of the piece and hardly on its number of lines. If a name occurs `_TRIES` times
without a value (it may be a single letter, or a hostile program prints it), the piece is searched forwards, which takes
linear time as well.

A pair is the name (not as part of a longer one: `val_loss=1` is no value of `loss`), `=` with a few blanks around it,
and a number in decimal or scientific notation, NaN or an infinity. A number directly followed by a letter or by more
digits (`1.5k`, `0x1F`, `1.2.3`, `1,234`) is ignored, because no value is better than a wrong one. `%` and other
punctuation may follow.

The input is bytes, since a log need not be valid UTF-8. Invalid bytes separate words, colours are removed, a carriage
return ends a line (progress bars), and only the first `MAX_LINE_BYTES` of a line are parsed.

A line may begin with the time at which it was logged, as the API server writes it on request (`timestamps=true`).

Pure, and for one thread at a time. Source: Katib's metrics collector for the form of a pair.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

# The part of a line that is parsed. Container runtimes split longer lines as well.
MAX_LINE_BYTES = 16384
# How often a name may be found without a value before the piece is searched forwards.
_TRIES = 32
_NAME_BYTES = r"A-Za-z0-9_./-"
# Bounded repetitions, so that no line makes the search try long runs repeatedly.
_NUMBER = r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,5})?"
_VALUE = rf"({_NUMBER}|[+-]?(?i:nan|inf(?:inity)?))(?![A-Za-z0-9_]|[.,][0-9])"
_COLOUR = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
_LINE_END = re.compile(rb"[\r\n]")
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)(?= )")
# Appended to a line that is cut, so that a number at the cut is ignored.
_CUT = b"_"


@dataclass(frozen=True, slots=True)
class LoggedMetric:
    """`value` is a JSON number, `NaN`, `+Inf` or `-Inf`; `logged_at` is None if the line has no time."""

    value: str
    logged_at: datetime | None


@dataclass(frozen=True, slots=True)
class MetricValue:
    """The last value of a metric, and when it was logged: RFC 3339 in UTC, whole seconds."""

    value: str
    log_time: str


class MetricParser:
    """Parses one log piece by piece. The pairs do not depend on where the pieces are cut."""

    def __init__(self, names: Sequence[str]) -> None:
        self._patterns = {name: (name.encode(), _pattern(name)) for name in names}
        self._rest = b""
        # Whether the rest of a line that was too long is being skipped.
        self._is_dropping = False
        # Whether the next block begins a line, and does not follow a carriage return.
        self._begins_line = True
        self._stamp = b""

    @property
    def last_logged_at(self) -> datetime | None:
        """When the last complete line was logged; None if the line has no time."""
        return _moment(self._stamp)

    def feed(self, data: bytes) -> Mapping[str, LoggedMetric]:
        """Returns the last metric of each name in the lines that end in this piece."""
        if self._is_dropping:
            end = _LINE_END.search(data)
            if end is None:
                return {}
            data = data[end.start() :]
            self._is_dropping = False
        data = self._rest + data
        whole = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        block, self._rest = data[:whole], data[whole:]
        if len(self._rest) > MAX_LINE_BYTES:
            block += self._rest[:MAX_LINE_BYTES] + _CUT
            self._rest, self._is_dropping = b"", True
        return self._scan(block) if block else {}

    def end(self) -> Mapping[str, LoggedMetric]:
        """Parses the last line, which no line feed has ended. The next piece begins a new line."""
        metrics = self.feed(b"\n")
        self._begins_line = True
        return metrics

    def _scan(self, block: bytes) -> Mapping[str, LoggedMetric]:
        begins_line, self._begins_line = self._begins_line, block.endswith(b"\n")
        self._remember_stamp(block, begins_line)
        plain = _plain(block)
        matches = {name: _last_match(plain, *pattern) for name, pattern in self._patterns.items()}
        return {
            name: LoggedMetric(_normal(match[1].decode()), _moment(_stamp_of(plain, match.start(), begins_line)))
            for name, match in matches.items()
            if match is not None
        }

    def _remember_stamp(self, block: bytes, begins_line: bool) -> None:
        """Remembers the time of the last line in the block, if it has one."""
        line = block.rfind(b"\n", 0, len(block) - 1) + 1
        if (line or begins_line) and (match := _STAMP.match(block, line)):
            self._stamp = match[0]


def _pattern(name: str) -> re.Pattern[bytes]:
    """The pattern begins with the literal name, which makes searches fast."""
    literal = re.escape(name)
    return re.compile(rf"{literal}(?<![{_NAME_BYTES}]{literal})(?=[ \t]{{0,8}}=[ \t]{{0,8}}{_VALUE})".encode())


def _last_match(block: bytes, name: bytes, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
    end = len(block)
    for _ in range(_TRIES):
        start = block.rfind(name, 0, end)
        if start < 0:
            return None
        if match := pattern.match(block, start):
            return match
        end = start
    last = None
    for match in pattern.finditer(block):
        last = match
    return last


def _plain(block: bytes) -> bytes:
    """Returns the block without colours, and with long lines cut."""
    lines = block.splitlines(keepends=True)
    if max(map(len, lines), default=0) > MAX_LINE_BYTES:
        block = b"".join(map(_cut, lines))
    return _COLOUR.sub(b"", block) if b"\x1b" in block else block


def _cut(line: bytes) -> bytes:
    text = line.rstrip(b"\r\n")
    return line if len(text) <= MAX_LINE_BYTES else text[:MAX_LINE_BYTES] + _CUT + line[len(text) :]


def _stamp_of(block: bytes, at: int, begins_line: bool) -> bytes:
    """Returns the time of the line at this position; empty after a carriage return, where no time is logged."""
    line = block.rfind(b"\n", 0, at) + 1
    if block.find(b"\r", line, at) >= 0 or not (line or begins_line):
        return b""
    match = _STAMP.match(block, line)
    return match[0] if match else b""


def _moment(stamp: bytes) -> datetime | None:
    try:
        moment = datetime.fromisoformat(stamp.decode("ascii"))
        moment.astimezone(UTC)
    except (ValueError, OverflowError):  # an offset may lead to a year that does not exist
        return None
    return moment


def _normal(text: str) -> str:
    value = float(text)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("+-").partition(".")
    digits = (whole.lstrip("0") or "0") + (f".{fraction}" if fraction else "")
    return ("-" if text.startswith("-") else "") + digits + (f"e{int(exponent)}" if exponent else "")
