"""A model of the API server and of its clients, driven by a script, for property tests of the cache.

Nothing here runs in a thread. The reflector reads lines; before each line, the script's actions happen: other clients
create, update and delete, responses to the program's own writes arrive late, the server compacts its history, refuses
requests or cuts the connection. So every interleaving is a list of actions, which hypothesis can generate and shrink.

The server keeps its whole history, so that the expected content of a cache is known for any version (`expected`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from helpers.answering import Lines
from helpers.things import Thing, bookmark, error_line, line, page, thing
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import key_of, version_of

NAMES = "abc"
GONE = ApiError(410, "Expired", "too old resource version")


class Act(enum.Enum):
    """The next action."""

    CREATE_OR_UPDATE = "write"
    DELETE = "delete"
    WRITE_AND_ASSUME = "write, and assume the answer at once"
    ASSUME_LATE = "an older answer arrives only now"
    DELIVER = "one event is delivered"
    BOOKMARK = "a bookmark is delivered"
    CUT = "the connection breaks"
    END = "the server ends the watch in order"
    EXPIRE_EVENT = "410 as an event"
    COMPACT = "history up to now is compacted"
    REFUSE_NEXT = "the next request is refused"
    FORGET_STREAMING = "from now on the server knows no streaming lists"


@dataclass(frozen=True, slots=True)
class Action:
    act: Act
    name: str = "a"
    # The choice of one of several responses or errors, or of a list's age.
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    type: str
    obj: Thing


REFUSALS = (
    ApiError(429, "TooManyRequests", "busy", retry_after_seconds=1.0),
    ApiError(500, "InternalError", "oops"),
    ApiError(0, "NotConnected", "connection refused"),
    ApiError(403, "Forbidden", "no"),
    GONE,
    ApiError(504, "Timeout", "Too large resource version: 9, current: 5"),
)


class World:
    """Server, clients and connection. A `Requester` as far as a reflector needs it."""

    def __init__(self, actions: Sequence[Action], assume: Callable[[Thing], bool], at_end: Callable[[], None]) -> None:
        self._actions = iter(actions)
        self._assume = assume
        self._at_end = at_end
        self._history: list[Change] = []
        self._version = 10
        self._compacted = 0
        self._refusals: list[ApiError] = []
        self._streaming = True
        self._over = False
        self._answers: list[Thing] = []

    # Expected state

    def state_at(self, version: int) -> dict[str, Thing]:
        """Returns the server's objects at a version."""
        state: dict[str, Thing] = {}
        for change in self._history:
            if version_of(change.obj) > version:
                break
            if change.type == "DELETED":
                del state[key_of(change.obj)]
            else:
                state[key_of(change.obj)] = change.obj
        return state

    @property
    def now(self) -> dict[str, Thing]:
        return self.state_at(self._version)

    # Requests

    def request(self, method: str, path: str, *, query: Mapping[str, str], **options: object) -> bytes:
        self._act_until_request()
        answer = self._page(query)
        # A response takes time too: it may be outdated when it arrives.
        self._act()
        return answer

    def _page(self, query: Mapping[str, str]) -> bytes:
        if "limit" not in query or query.get("resourceVersion") == "0":
            return page(self._version, *self.now.values())
        # Each page has one object; the token names the snapshot, as that of the real server does.
        snapshot, _, after = query.get("continue", f"{self._version}/").partition("/")
        if int(snapshot) < self._compacted:
            raise GONE
        objects = sorted(self.state_at(int(snapshot)).values(), key=key_of)
        rest = [obj for obj in objects if obj.metadata.name > after]
        more = f"{snapshot}/{rest[0].metadata.name}" if len(rest) > 1 else ""
        return page(int(snapshot), *rest[:1], continue_=more)

    def stream(
        self, path: str, *, query: Mapping[str, str], read_timeout_seconds: float, max_line_bytes: int = 0
    ) -> Lines:
        self._act_until_request()
        if "sendInitialEvents" in query:
            if not self._streaming:
                raise ApiError(422, "Invalid", "sendInitialEvents is forbidden")
            return Lines(self._streaming_list())
        self._check_version(query)
        return Lines(self._watch(int(query["resourceVersion"])))

    # Lines

    def _streaming_list(self) -> Iterator[bytes]:
        start = self._version
        for obj in sorted(self.now.values(), key=key_of):
            yield line("ADDED", obj)
        # Changes before the end of the list are part of it.
        self._act()
        for change in self._history:
            if version_of(change.obj) > start:
                yield line(change.type, change.obj)
        listed = self._version
        # Further changes can happen before the line arrives.
        self._act()
        yield bookmark(listed, ends_list=True)
        yield from self._watch(listed)

    def _watch(self, sent: int) -> Iterator[bytes]:
        while not self._over:
            action = self._act()
            pending = [change for change in self._history if version_of(change.obj) > sent]
            if action is None:
                yield from (line(change.type, change.obj) for change in pending)
                yield bookmark(self._version)
                self._finish()
            elif action.act is Act.DELIVER and pending:
                sent = version_of(pending[0].obj)
                yield line(pending[0].type, pending[0].obj)
            elif action.act is Act.BOOKMARK and not pending:
                sent = self._version
                yield bookmark(sent)
            elif action.act is Act.CUT:
                raise ApiError(0, "ConnectionBroken", "the stream broke off")
            elif action.act is Act.EXPIRE_EVENT:
                yield error_line(410, "Expired")
            elif action.act is Act.END:
                return

    # Actions

    def _act(self) -> Action | None:
        action = next(self._actions, None)
        if action is not None:
            self._do(action)
        return action

    def _act_until_request(self) -> None:
        """Runs actions while a request is in progress, which may then be refused."""
        self._act()
        if self._refusals:
            raise self._refusals.pop(0)

    def _do(self, action: Action) -> None:
        if action.act in (Act.CREATE_OR_UPDATE, Act.WRITE_AND_ASSUME):
            self._answers.append(self._write(action.name))
        if action.act is Act.WRITE_AND_ASSUME:
            self._assume(self._answers[-1])
        if action.act is Act.ASSUME_LATE and self._answers:
            self._assume(self._answers[action.choice % len(self._answers)])
        if action.act is Act.DELETE:
            self._delete(action.name)
        if action.act is Act.COMPACT:
            self._compacted = self._version
        if action.act is Act.REFUSE_NEXT:
            self._refusals.append(REFUSALS[action.choice % len(REFUSALS)])
        if action.act is Act.FORGET_STREAMING:
            self._streaming = False

    def _write(self, name: str) -> Thing:
        old = self.now.get(f"ns/{name}")
        self._version += 1
        uid = old.metadata.uid if old else f"uid-{self._version}"
        obj = thing(name, self._version, uid=uid)
        self._history.append(Change("MODIFIED" if old else "ADDED", obj))
        return obj

    def _delete(self, name: str) -> None:
        old = self.now.get(f"ns/{name}")
        if old is not None:
            self._version += 1
            self._history.append(Change("DELETED", thing(name, self._version, uid=old.metadata.uid)))

    def _check_version(self, query: Mapping[str, str]) -> None:
        version = int(query.get("resourceVersion") or 0)
        if "watch" in query and version < self._compacted:
            raise GONE

    def _finish(self) -> None:
        self._over = True
        self._at_end()
