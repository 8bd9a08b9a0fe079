"""The values of arguments: names of jobs, numbers, durations, quantities, variables and wait conditions.

Each function raises `argparse.ArgumentTypeError` for a text that is no such value. Only the standard library and
modules that need no more are imported.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfjob_controller.client.waitconditions import NAMES, ConditionHasStatus, name_of
from tfjob_controller.kinds.names import KIND_NAMES
from tfjob_controller.kube.names import image_violation, name_violation, namespace_violation
from tfjob_controller.util.timestamps import parse_duration

if TYPE_CHECKING:
    from tfjob_controller.client.waitconditions import Until

# By the names of a kind that kubectl accepts. `list -o name` prints the group too.
_KIND_WORDS = {
    f"{alias}{group}": name.word
    for name in KIND_NAMES
    for alias in (name.word, name.plural, name.short)
    if alias
    for group in ("", ".kubeflow.org")
}


def forms_of(name: str) -> str:
    """Returns the forms of a job's name that name its kind, for a message."""
    *forms, last = (f"{kind.word}/{name}" for kind in KIND_NAMES)
    return f"{', '.join(forms)} or {last}"


JOB_FORMS = f"NAME, {forms_of('NAME')}"
# Characters of a long text that errors repeat.
_SHOWN = 80
_MAX_PORT = 65535
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,9}")
# A name is any printable ASCII (KEP-4369).
_VARIABLE = re.compile(r"([ -<>-~]+)=(.*)", re.DOTALL)
_PAIR = re.compile(r"([A-Za-z0-9][A-Za-z0-9._/-]*)=(.*)", re.DOTALL)
_SECRET_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)=([^/]+)/([-A-Za-z0-9_.]+)")
_CLAIM = re.compile(r"([^/:]+):(/[^:]*)(:ro)?")
_VOLUME = re.compile(r"(?:(configmap|secret)/([^/:]+)|(emptydir|memory)):(/[^:]*)")
_CONDITION = re.compile(r"condition=([A-Za-z]{1,60})(?:=(True|False|Unknown))?", re.IGNORECASE)
# The wait conditions as completion and errors show them; they are accepted in any case.
CONDITION_WORDS = tuple(name.lower() for name in NAMES)


@dataclass(frozen=True, slots=True)
class JobName:
    """A job as the command line names it; `kind` is empty for a name alone."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}" if self.kind else self.name


def job_argument(text: str) -> JobName:
    """`NAME`, or `KIND/NAME` with the words that kubectl knows."""
    word, slash, name = text.rpartition("/")
    if slash and word not in _KIND_WORDS:
        raise ArgumentTypeError(f"{text!r} is not a job: use {JOB_FORMS}")
    return JobName(_KIND_WORDS[word] if slash else "", name_argument(name))


def namespace_argument(text: str) -> str:
    if text and (violation := namespace_violation(text)):
        raise _no_name(text, "a namespace", violation)
    return text


def name_argument(text: str) -> str:
    if violation := name_violation(text):
        raise _no_name(text, "a job", violation)
    return text


def _no_name(text: str, what: str, violation: str) -> ArgumentTypeError:
    shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
    return ArgumentTypeError(f"{shown!r} cannot be the name of {what}: it {violation}")


def number_argument(text: str) -> int:
    if _WHOLE_NUMBER.fullmatch(text) is None:
        raise ArgumentTypeError(f"must be a whole number, not {text[:80]!r}")
    return int(text)


def count_argument(text: str, least: int = 0) -> int:
    if (count := number_argument(text)) < least:
        raise ArgumentTypeError(f"must be {least} or more")
    return count


def port_argument(text: str) -> int:
    if (port := count_argument(text)) > _MAX_PORT:
        raise ArgumentTypeError(f"must be from 0 to {_MAX_PORT}, is {port}")
    return port


def job_or_number_argument(text: str) -> JobName:
    """A job, or a number, which may be the name of a job too."""
    return JobName("", text) if _WHOLE_NUMBER.fullmatch(text) else job_argument(text)


def positive_argument(text: str) -> int:
    return count_argument(text, least=1)


def duration_argument(text: str) -> float:
    """A duration as Go writes it, or plain seconds."""
    try:
        return parse_duration(text)
    except ValueError:
        raise ArgumentTypeError(f"must be a duration such as 90s, 10m or 1h30m, not {text[:80]!r}") from None


def quantity_argument(text: str) -> str:
    from tfjob_controller.api.common.quantity import milli_of

    try:
        amount = milli_of(text)
    except ValueError:
        amount = 0
    if amount <= 0:
        raise ArgumentTypeError(f"must be a quantity such as 2, 500m or 4Gi, not {text[:80]!r}")
    return text


def token_argument(text: str) -> str:
    if not text:
        raise ArgumentTypeError("is empty")
    return text


def variable_argument(text: str) -> tuple[str, str]:
    match = _VARIABLE.fullmatch(text)
    if match is None:
        raise ArgumentTypeError("must be NAME=VALUE")  # without the text, which may be a secret
    return match[1], match[2]


def pair_argument(text: str) -> tuple[str, str]:
    """A label, an annotation or an entry of a node selector."""
    match = _PAIR.fullmatch(text)
    if match is None:
        raise ArgumentTypeError(f"must be KEY=VALUE, not {text[:_SHOWN]!r}")
    return match[1], match[2]


def secret_variable_argument(text: str) -> tuple[str, dict[str, Any]]:
    """A variable whose value is a key of a Secret."""
    match = _SECRET_VARIABLE.fullmatch(text)
    if match is None:
        # Without the text, which may be the value itself.
        raise ArgumentTypeError("must be NAME=SECRET/KEY, such as TOKEN=registry/token")
    return match[1], {"valueFrom": {"secretKeyRef": {"name": object_name_argument(match[2]), "key": match[3]}}}


def claim_argument(text: str) -> tuple[str, dict[str, Any]]:
    """The path of a mount, and its volume."""
    match = _CLAIM.fullmatch(text)
    if match is None:
        raise ArgumentTypeError(f"must be CLAIM:PATH or CLAIM:PATH:ro, such as data:/data, not {text[:_SHOWN]!r}")
    claim = {"claimName": object_name_argument(match[1])} | ({"readOnly": True} if match[3] else {})
    return match[2], {"persistentVolumeClaim": claim}


def volume_argument(text: str) -> tuple[str, dict[str, Any]]:
    """The path of a mount, and its volume."""
    match = _VOLUME.fullmatch(text)
    if match is None:
        forms = "configmap/NAME:PATH, secret/NAME:PATH, emptydir:PATH or memory:PATH"
        raise ArgumentTypeError(f"must be {forms}, not {text[:_SHOWN]!r}")
    kind, name, scratch, path = match.groups()
    if scratch:
        return path, {"emptyDir": {"medium": "Memory"} if scratch == "memory" else {}}
    name = object_name_argument(name)
    return path, {"secret": {"secretName": name}} if kind == "secret" else {"configMap": {"name": name}}


def object_name_argument(text: str) -> str:
    if violation := name_violation(text):
        raise _no_name(text, "an object", violation)
    return text


def image_argument(text: str) -> str:
    """An image; empty for none."""
    if text and (violation := image_violation(text)):
        raise _no_name(text, "an image", violation)
    return text


def until_argument(text: str) -> Until:
    if (name := name_of(text)) is not None:
        return name
    if (match := _CONDITION.fullmatch(text)) is None:
        known = f"{', '.join(CONDITION_WORDS)} or condition=NAME[=STATUS]"
        raise ArgumentTypeError(f"must be {known}, not {text[:80]!r}")
    return ConditionHasStatus(match[1], (match[2] or "True").capitalize())
