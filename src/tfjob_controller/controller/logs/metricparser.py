"""Finds `name=value` pairs in a program's log, and keeps the last of each name.

Theory of operation. A log comes in pieces of any size. Only what ends in a line end is looked at, so that no number is
taken for whole before it is; the rest waits for more. Of a piece nobody wants but the last pair of each name, so it is
searched for the name from its end: what that costs follows the bytes, hardly the lines. A name that is found often and
never with a value (it may be one letter, or what others print is of ill will) is searched for from the front after
some tries, which is linear too.

What a pair is: the name (not a part of a longer one: `val_loss=1` says nothing of `loss`), `=` with a few blanks around
it, and a number in decimal or scientific notation, or NaN or an infinity. What goes on like a word or another number
(`1.5k`, `0x1F`, `1.2.3`, `1,234`) is none: nothing is better than a wrong figure. `%` and other punctuation may follow.

Bytes in, since programs print anything: what is no UTF-8 separates words as a blank does, colours are taken away, a
carriage return ends a line (progress bars), and of a line that is too long the beginning counts.

A line may begin with the time at which it was logged, as the API server writes it on request (`timestamps=true`).

Pure; one thread's at a time. Source: Katib's metrics collector for the form of a pair.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

# What counts of a line: more than anybody prints who prints figures. The runtime cuts lines here as well.
MAX_LINE_BYTES = 16384
# Names that were found without a value, one after another, before the search begins at the front.
_TRIES = 32
_NAME_BYTES = r"A-Za-z0-9_./-"
# Limits, so that no line makes the search try long runs again and again.
_NUMBER = r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,5})?"
_VALUE = rf"({_NUMBER}|[+-]?(?i:nan|inf(?:inity)?))(?![A-Za-z0-9_]|[.,][0-9])"
_COLOUR = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
_LINE_END = re.compile(rb"[\r\n]")
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)(?= )")
# Goes on like a word: a number that is cut here is none.
_CUT = b"_"


@dataclass(frozen=True, slots=True)
class LoggedMetric:
    """`value` is a JSON number, `NaN`, `+Inf` or `-Inf`; `logged_at` is None where the line does not say."""

    value: str
    logged_at: datetime | None


@dataclass(frozen=True, slots=True)
class MetricValue:
    """The last value of a metric, and when it was logged: RFC 3339 in UTC, whole seconds."""

    value: str
    log_time: str


class MetricParser:
    """Takes one log piece by piece. However it is cut, the pairs are the same."""

    def __init__(self, names: Sequence[str]) -> None:
        self._patterns = {name: (name.encode(), _pattern(name)) for name in names}
        self._rest = b""
        # The rest of a line that was too long comes to nothing.
        self._is_dropping = False
        # Whether what is scanned next begins a line, and not what stands after a carriage return.
        self._begins_line = True
        self._stamp = b""

    @property
    def last_logged_at(self) -> datetime | None:
        """What the last line that came whole says of its time."""
        return _moment(self._stamp)

    def feed(self, data: bytes) -> Mapping[str, LoggedMetric]:
        """The last pair of each name in the lines that end in this piece."""
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
        """The log is over, so its last line is whole as well; what comes next begins a line."""
        found = self.feed(b"\n")
        self._begins_line = True
        return found

    def _scan(self, block: bytes) -> Mapping[str, LoggedMetric]:
        begins_line, self._begins_line = self._begins_line, block.endswith(b"\n")
        self._remember_stamp(block, begins_line)
        plain = _plain(block)
        found = {name: _last(plain, *searched) for name, searched in self._patterns.items()}
        return {
            name: LoggedMetric(_normal(match[1].decode()), _moment(_stamp_of(plain, match.start(), begins_line)))
            for name, match in found.items()
            if match is not None
        }

    def _remember_stamp(self, block: bytes, begins_line: bool) -> None:
        """Of the last line in the block; of the one before where that is without."""
        line = block.rfind(b"\n", 0, len(block) - 1) + 1
        if (line or begins_line) and (match := _STAMP.match(block, line)):
            self._stamp = match[0]


def _pattern(name: str) -> re.Pattern[bytes]:
    """Begins with the name itself, which is what a search is fast with."""
    literal = re.escape(name)
    return re.compile(rf"{literal}(?<![{_NAME_BYTES}]{literal})(?=[ \t]{{0,8}}=[ \t]{{0,8}}{_VALUE})".encode())


def _last(block: bytes, name: bytes, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
    end = len(block)
    for _ in range(_TRIES):
        at = block.rfind(name, 0, end)
        if at < 0:
            return None
        if match := pattern.match(block, at):
            return match
        end = at
    last = None
    for match in pattern.finditer(block):
        last = match
    return last


def _plain(block: bytes) -> bytes:
    """Without colours, and without what is too much of a line."""
    lines = block.splitlines(keepends=True)
    if max(map(len, lines), default=0) > MAX_LINE_BYTES:
        block = b"".join(map(_cut, lines))
    return _COLOUR.sub(b"", block) if b"\x1b" in block else block


def _cut(line: bytes) -> bytes:
    text = line.rstrip(b"\r\n")
    return line if len(text) <= MAX_LINE_BYTES else text[:MAX_LINE_BYTES] + _CUT + line[len(text) :]


def _stamp_of(block: bytes, at: int, begins_line: bool) -> bytes:
    """Of the line that has a pair there; what stands after a carriage return has none, for its line began long ago."""
    line = block.rfind(b"\n", 0, at) + 1
    if block.find(b"\r", line, at) >= 0 or not (line or begins_line):
        return b""
    match = _STAMP.match(block, line)
    return match[0] if match else b""


def _moment(stamp: bytes) -> datetime | None:
    try:
        moment = datetime.fromisoformat(stamp.decode("ascii"))
        moment.astimezone(UTC)
    except (ValueError, OverflowError):  # an offset can lead out of the years that exist
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
