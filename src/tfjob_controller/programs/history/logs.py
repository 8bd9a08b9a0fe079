"""Reads the ends of the logs of a job's pods, within a time and a number of logs.

The API server gives the last lines of a log, or the first bytes, but not the last bytes. So so many last lines are
asked for that they usually have a MiB, with a limit of bytes; while the limit is reached, a quarter as many are asked
for. What comes does not tell how many to ask for: the kubelet counts the pieces, of 16 KiB at most, in which the
runtime writes a long line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tfjob_controller.api.common.core import PODS
from tfjob_controller.client.diagnostics.replicas import replica_blamed
from tfjob_controller.client.diagnostics.timeline import replica_of
from tfjob_controller.client.history.record import MAX_LOG_BYTES, LogFile
from tfjob_controller.jobs.trainingjob import TrainingStatus
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock

Object = dict[str, Any]

MAX_LOGS = 64
# For all logs of a job.
LOGS_SECONDS = 15.0
_REQUEST_SECONDS = 5.0
# Each try has so much less lines than the last one that what it gives below the limit is a MiB or more. The last one
# asks for 78, which are below the limit in pieces of any runtime.
_LINES, _FEWER, _TRIES = 20_000, 4, 5
_READ_BYTES = _FEWER * MAX_LOG_BYTES


@dataclass(frozen=True, slots=True)
class LogSource:
    """A log that can be read."""

    pod: str
    replica: str
    container: str


@dataclass(frozen=True, slots=True)
class Log:
    file: LogFile
    content: bytes


def sources(status: TrainingStatus, pods: Sequence[Object]) -> list[LogSource]:
    """The logs of a job: first those of the replica that its reason blames, or else of its chief."""
    newest: dict[str, Object] = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or "")):
        if replica := replica_of(pod):
            newest[replica] = pod
    roles = [role.role for role in status.roles]
    blamed = replica_blamed(status.reason, newest)

    def order(replica: str) -> tuple[bool, int, int, str]:
        role, _, index = replica.rpartition("-")
        place = roles.index(role) if role in roles else len(roles)
        return replica != blamed, place, int(index) if index.isdecimal() else 0, replica

    found = (
        LogSource(newest[replica]["metadata"]["name"], replica, container)
        for replica in sorted(newest, key=order)
        for container in _containers(newest[replica])
    )
    return [source for source in found if LogFile(source.replica, source.container, 0).is_valid]


def _containers(pod: Object) -> Iterator[str]:
    """The names of the containers that have started, that of the program first."""
    status = pod.get("status", {})
    for kind in ("containerStatuses", "initContainerStatuses"):
        order = [container.get("name") for container in pod.get("spec", {}).get("containers", ())]
        listed = status.get(kind) or ()
        for container in sorted(listed, key=lambda each: order.index(each["name"]) if each["name"] in order else 0):
            state, last = container.get("state") or {}, container.get("lastState") or {}
            if state.get("running") or state.get("terminated") or last.get("terminated"):
                yield str(container["name"])


class LogEnds:
    """Reads logs of jobs in one namespace. `unread` has a line for each that could not be read."""

    def __init__(self, requester: Requester, namespace: str, clock: Clock) -> None:
        self._requester = requester
        self._namespace = namespace
        self._clock = clock
        self.unread: list[str] = []

    def read(self, found: Sequence[LogSource]) -> Iterator[Log]:
        """Yields the logs one by one, so that one is in memory. Empty logs are left out."""
        deadline = self._clock.monotonic() + LOGS_SECONDS
        for number, source in enumerate(found):
            if number >= MAX_LOGS or self._clock.monotonic() >= deadline:
                self.unread.append(f"{len(found) - number} more logs")
                return
            try:
                content, is_cut = self._end_of(source, deadline)
            except ApiError as error:
                self.unread.append(f"the log of {source.replica} ({source.container}): {error.message[:300]}")
                continue
            if content:
                yield Log(LogFile(source.replica, source.container, len(content), is_cut), content)

    def _end_of(self, source: LogSource, deadline: float) -> tuple[bytes, bool]:
        """The last bytes of a log, usually from the beginning of a line, and whether there are more before them."""
        lines = _LINES
        content = self._request(source, lines)
        tries = 1
        while (is_truncated := len(content) >= _READ_BYTES) and tries < _TRIES and self._clock.monotonic() < deadline:
            lines //= _FEWER
            content = self._request(source, lines)
            tries += 1
        if is_truncated:
            self.unread.append(f"the end of the log of {source.replica} ({source.container}): its lines are too long")
        is_cut = tries > 1 or len(content) > MAX_LOG_BYTES or content.count(b"\n") >= lines
        return _last_lines(content), is_cut

    def _request(self, source: LogSource, lines: int) -> bytes:
        return self._requester.request(
            "GET",
            PODS.path(self._namespace, source.pod, "log"),
            query={
                "container": source.container,
                "tailLines": str(lines),
                "limitBytes": str(_READ_BYTES),
                "timestamps": "true",
            },
            accept="*/*",
            timeout_seconds=_REQUEST_SECONDS,
            retry=False,
        )


def _last_lines(content: bytes) -> bytes:
    """The last `MAX_LOG_BYTES`, from the beginning of a line unless that one has most of them."""
    if len(content) <= MAX_LOG_BYTES:
        return content
    content = content[-MAX_LOG_BYTES:]
    begin = content.find(b"\n") + 1
    return content[begin:] if begin <= MAX_LOG_BYTES // 2 else content
