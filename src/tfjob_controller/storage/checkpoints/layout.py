"""The paths of a checkpoint's parts in the storage, and the rules for names.

Theory of operation. Below the URI, or below `node-<index>` in it if each node has checkpoints of its own, there are

    data/<name>/<upload id>/<files…>                      the content of one upload
    manifests/<sequence>-<time>-<upload id>.json          its manifest, written last

A checkpoint exists if and only if its manifest does. An upload id is random, so two sidecars that save at the same time
(a pod that is being replaced, and its successor) never write to the same name, and a file is never overwritten. The
sequence number is one more than the highest that the uploader has seen: the order of checkpoints is that of their
manifests' names, and the clocks of nodes only decide between uploads that happened at the same time. A listing of
`manifests/` is all that a restore needs to find the newest one.

Data and manifests have prefixes of their own, because a checkpoint may have any name, also `manifests`. Names are
quoted as in URLs except for characters that all storage services and file systems take literally.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from tfjob_controller.util.text import CONTROL_CHARACTERS

MANIFESTS, DATA = "manifests/", "data/"
LONGEST_NAME = 253
MOST_FILES = 100_000
MOST_DEPTH = 100
MOST_BYTES = 5 * 2**40
MOST_MANIFEST_BYTES = 32 * 2**20
DONE = ".done"

UPLOAD_ID = re.compile(r"[0-9a-f]{32}")
_MANIFEST = re.compile(rf"{MANIFESTS}([0-9]{{12,15}})-([0-9]{{8}}T[0-9]{{6}}Z)-({UPLOAD_ID.pattern})\.json")
_UPLOADED = re.compile(rf"({DATA}[^/]+/({UPLOAD_ID.pattern})/).+", re.DOTALL)
_UNPRINTABLE = re.compile(f"[\x00-\x1f{CONTROL_CHARACTERS}]")
_EXTENSION = re.compile(r"\.[A-Za-z][A-Za-z0-9_]*$")
_NUMBER = re.compile(r"[0-9]+")
_LARGEST_STEP = 2**63 - 1
_TIME = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True, order=True)
class ManifestName:
    """The name of a manifest; a larger one belongs to a newer checkpoint."""

    sequence: int
    time: str
    upload_id: str

    @classmethod
    def made(cls, sequence: int, moment: datetime, upload_id: str) -> ManifestName:
        return cls(sequence, moment.astimezone(UTC).strftime(_TIME), upload_id)

    @classmethod
    def read(cls, text: str) -> ManifestName | None:
        """The parts of a name in the storage; None if it is not that of a manifest."""
        found = _MANIFEST.fullmatch(text)
        return cls(int(found[1]), found[2], found[3]) if found else None

    def __str__(self) -> str:
        return f"{MANIFESTS}{self.sequence:012d}-{self.time}-{self.upload_id}.json"


def data_prefix(name: str, upload_id: str) -> str:
    """Where the files of one upload are; ends with a slash."""
    return f"{DATA}{_quoted(name)}/{upload_id}/"


def data_name(name: str, upload_id: str, file: str) -> str:
    return data_prefix(name, upload_id) + _quoted(file)


def upload_of(stored_name: str) -> tuple[str, str] | None:
    """The prefix and the id of the upload to which a stored file belongs; None if it belongs to none."""
    found = _UPLOADED.fullmatch(stored_name)
    return (found[1], found[2]) if found else None


def problem_of_name(name: str) -> str:
    """Why a file or folder of this name cannot be a checkpoint; empty if it can."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if len(name) > LONGEST_NAME:
        return f"its name has more than {LONGEST_NAME} characters"
    if _UNPRINTABLE.search(name):
        return "its name contains control characters"
    if not name or name.startswith(".") or "/" in name:
        return "its name is hidden or a path"
    return ""


def step_of(name: str) -> int | None:
    """The training step that a name tells: 500 for `checkpoint-500` and `step_500.pt`; None without a number."""
    numbers = _NUMBER.findall(_EXTENSION.sub("", name))
    if not numbers or len(numbers[-1]) > len(str(_LARGEST_STEP)):
        return None
    step = int(numbers[-1])
    return step if step <= _LARGEST_STEP else None


def _quoted(name: str) -> str:
    return quote(name, safe="/@+=,~ ")
