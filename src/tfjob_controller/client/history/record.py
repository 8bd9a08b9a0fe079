"""What is kept of a job that has ended: its record, and where the record is.

A record is one object in JSON, and the name of the object has what a list of jobs shows, so that a listing is the
list. Whatever is read from a storage is checked: names by `entry_of`, and sizes before anything is parsed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from tfjob_controller.client.diagnostics.description import Description
from tfjob_controller.client.diagnostics.timeline import TimelineEntry
from tfjob_controller.client.errors import ClientError
from tfjob_controller.kube import nesting
from tfjob_controller.util.timestamps import parse_time_or_none

# The largest object of the API server has 1.5 MB, and the rest is bounded when it is written.
MAX_RECORD_BYTES = 8 * 2**20
MAX_LOG_BYTES = 2**20
# The state of a job that was deleted before it ended.
DELETED = "Deleted"
_NAME_CHARACTERS = 120
_GROUP = "kubeflow.org"
_TIME, _TIME_FORM = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z"), r"\1\2\3T\4\5\6Z"
_ENTRY = re.compile(
    r"(?P<ended>\d{8}T\d{6}Z)~(?P<kind>[A-Za-z0-9]{1,30}(\.[a-z0-9.-]{1,40})?)~(?P<name>[a-z0-9.-]{1,120})~(?P<uid>[A-Za-z0-9-]{1,40})"
    r"~(?P<state>[A-Za-z]{1,20})\.json"
)
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LOG_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,180}")


class HistoryError(ClientError):
    """The history, or a job in it, cannot be read."""


class LogFile(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One log: `size` bytes of a container, the last ones if the log `is_cut`. Each line begins with its time."""

    replica: str
    container: str
    size: int
    is_cut: bool = False

    @property
    def name(self) -> str:
        return f"{self.replica}.{self.container}"

    @property
    def is_valid(self) -> bool:
        """Whether the name can be a part of a path."""
        return _LOG_NAME.fullmatch(self.name) is not None


class Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A job as it was at its end. Times are RFC 3339.

    `timeline` is folded, as `explain` shows it; the first log is that of the chief, or of the replica that made the job
    fail. `logged_metrics` are the names of metrics that the first log shows. `unread` tells what is missing, and why.
    `body` is the object without managedFields. It stays JSON until it is asked for, since it may have many values.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    state: str
    ended: str
    phase: str = ""
    reason: str = ""
    created: str = ""
    started: str = ""
    body: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="manifest")
    timeline: list[TimelineEntry] = []
    metrics: dict[str, str] = {}
    logged_metrics: list[str] = []
    logs: list[LogFile] = []
    unread: list[str] = []
    description: Description | None = None
    version: int = 1

    @property
    def manifest(self) -> dict[str, Any]:
        """The object as it was at the end, with its status. Raises `HistoryError` for what is no object."""
        try:
            return nesting.decode_truncated(_decode_object, bytes(self.body))
        except msgspec.MsgspecError as error:
            raise HistoryError(f"the manifest of {self.name[:_NAME_CHARACTERS]} cannot be read: {error}") from None

    @property
    def entry(self) -> Entry:
        group = self.api_version.partition("/")[0]
        kind = self.kind if group == _GROUP else f"{self.kind}.{group}"
        return Entry(self.namespace, kind, self.name[:_NAME_CHARACTERS], self.uid, self.state, self.ended)


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of a list of ended jobs. Only the first 120 characters of a name are in it.

    A `kind` of another group than kubeflow.org is followed by a dot and the group.
    """

    namespace: str
    kind: str
    name: str
    uid: str
    state: str
    ended: str

    @property
    def word(self) -> str:
        """The kind in lower case, as in commands."""
        return self.kind.partition(".")[0].lower()

    @property
    def file(self) -> str:
        ended = _TIME.sub(_TIME_FORM, self.ended)
        return f"{ended}~{self.kind}~{self.name}~{self.uid}~{self.state}.json"

    def is_of(self, name: str) -> bool:
        """Whether this may be a job of that name: of longer names than an entry has, only the beginning is known."""
        return name[:_NAME_CHARACTERS] == self.name

    @property
    def order(self) -> tuple[str, str]:
        """What lists are sorted by: the time, and the UID, so that the order of equal times is always the same."""
        return self.ended, self.uid


def entry_of(namespace: str, file: str) -> Entry | None:
    """The entry that a file name describes; None for another file, or a time that does not exist."""
    match = _ENTRY.fullmatch(file)
    if match is None:
        return None
    time = match["ended"]
    ended = f"{time[:4]}-{time[4:6]}-{time[6:8]}T{time[9:11]}:{time[11:13]}:{time[13:15]}Z"
    if parse_time_or_none(ended) is None:
        return None
    return Entry(namespace, match["kind"], match["name"], match["uid"], match["state"], ended)


def is_namespace(name: str) -> bool:
    return _NAMESPACE.fullmatch(name) is not None


def lines_of(log: bytes) -> list[bytes]:
    """The lines of a log without their ends. Only LF ends a line, as in kubelets; programs print other separators."""
    return log.removesuffix(b"\n").split(b"\n") if log else []


_decode = msgspec.json.Decoder(Record).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
encode_record = msgspec.json.Encoder().encode


def decode_record(content: bytes) -> Record:
    """Raises ValueError for what is no record."""
    if not content:
        raise ValueError("it is not a record: it is empty")
    if len(content) > MAX_RECORD_BYTES:
        raise ValueError(f"the record has more than {MAX_RECORD_BYTES} bytes")
    try:
        return _decode(content)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it is not a record: {error}") from None
