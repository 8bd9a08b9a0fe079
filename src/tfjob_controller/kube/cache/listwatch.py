"""The list-watch state: which request keeps a copy of a collection up to date, and from which version.

Theory of operation. `ListWatchState` decides which of three requests comes next, from the outcome of the last:

    STREAM ─ initial events end ─▶ WATCH ─ 410, 404, twice silent, ERROR event 5xx ─▶ STREAM
       │                             ▲  └─ ended, broken, 429, 5xx: WATCH again from the last version
       └ refused (400, 422, …) ─▶ LIST ─ last page ─┘

- STREAM is a watch that begins with all present objects (`sendInitialEvents`): no large response has to be held in
  memory, and its connection continues as the watch. A server without streaming lists refuses it as invalid; then LIST
  does the same in pages. So it does after two streaming lists that ended early.
- The first LIST asks for `resourceVersion=0` (whatever the server has cached); a later one for at least the last
  version seen, unpaged, since only then the server answers from its cache. STREAM asks for the newest version, later
  for at least the last one.
- 410 (the version was compacted) and "too large resource version" (this server has not reached it) on a list mean that
  the version is of no use: the next request asks for the newest. A 410 on a watch only means to list.
- A failure never drops what is known. 429, 5xx and a lost connection back off and watch again from the last version; a
  relist is what a recovering server needs least. 404 lists again, since a deleted kind took its objects with it. A 5xx
  *inside* a watch means that the server cannot send one change; the same version would fail again, so this lists too.
- A watch that was silent until its read timed out may have lost its connection. Twice in a row means that the server
  does not know our version (its store was set back), since it otherwise sends a bookmark each minute: list.

It does no I/O and reads no clock; the reflector sends the requests and reports their outcomes.

Threads: none; one thread owns one. Source: client-go tools/cache/reflector.go; apimachinery
pkg/apis/meta/internalversion/validation (what is refused); apiserver pkg/storage/cacher (bookmarks, versions).
"""

from __future__ import annotations

import enum

from tfjob_controller.kube.errors import ApiError

# client-go's pager. Servers that answer version 0 from their cache ignore it.
PAGE_SIZE = 500
# A single silence may be a lost connection.
_SILENCES_BEFORE_LIST = 2
_CUTS_BEFORE_LIST = 2
# How a server or a proxy refuses the parameters of a streaming list; API servers answer 422.
_NOT_UNDERSTOOD = frozenset({400, 405, 406, 415, 422, 501})


class RequestMode(enum.Enum):
    """The request that comes next."""

    STREAM = "streaming list"
    LIST = "list"
    WATCH = "watch"


class ListWatchState:
    """The next request, derived from the outcomes of the earlier ones."""

    def __init__(self) -> None:
        self.mode = RequestMode.STREAM
        self.version = 0
        self._want_newest = False
        self._silences = 0
        self._cuts = 0

    def query(self, watch_seconds: int, continue_token: str = "") -> dict[str, str]:
        """The parameters of the next request; a token asks for the next page of a list."""
        if self.mode is RequestMode.LIST:
            return self._list_query(continue_token)
        query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(watch_seconds)}
        if self.mode is RequestMode.STREAM:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        if self.version and not self._want_newest:
            query["resourceVersion"] = str(self.version)
        return query

    def _list_query(self, continue_token: str) -> dict[str, str]:
        if continue_token:
            return {"limit": str(PAGE_SIZE), "continue": continue_token}
        if self._want_newest:
            return {"limit": str(PAGE_SIZE)}
        if self.version:
            return {"resourceVersion": str(self.version)}
        return {"limit": str(PAGE_SIZE), "resourceVersion": "0"}

    def record_list(self, version: int) -> None:
        """A complete list was received: watch from its version."""
        self.mode, self.version = RequestMode.WATCH, version
        self._want_newest = False
        self._silences = self._cuts = 0

    def record_progress(self, version: int) -> None:
        """A watch has delivered everything up to this version."""
        self.version = version
        self._silences = 0

    def record_failure(self, error: ApiError, *, opened: bool = False, silent: bool = False) -> None:
        """A request failed: after its response had begun if `opened`, by a read time-out without a line if `silent`."""
        if error.is_gone or _is_too_large_version(error):
            self._version_refused()
        elif self.lacks_streaming_lists(error):
            self.mode = RequestMode.LIST
        elif self.mode is RequestMode.STREAM and opened:
            self._cut()
        elif self.mode is RequestMode.WATCH and (error.is_not_found or (opened and error.is_server_error)):
            self.mode = RequestMode.STREAM
        elif self.mode is RequestMode.WATCH and silent:
            self._silent()

    def lacks_streaming_lists(self, error: ApiError) -> bool:
        """Reports whether the request failed because the server has no streaming lists: Kubernetes 1.33, for example.

        That is no failure, and the list in pages that comes next needs no delay.
        """
        return self.mode is RequestMode.STREAM and error.status in _NOT_UNDERSTOOD

    def restart(self) -> None:
        """Events could not be applied for an unknown reason: list everything again."""
        self.mode = RequestMode.STREAM

    def _version_refused(self) -> None:
        if self.mode is RequestMode.WATCH:
            self.mode = RequestMode.STREAM
        else:
            self._want_newest = True

    def _cut(self) -> None:
        self._cuts += 1
        if self._cuts >= _CUTS_BEFORE_LIST:
            self.mode, self._cuts = RequestMode.LIST, 0

    def _silent(self) -> None:
        self._silences += 1
        if self._silences >= _SILENCES_BEFORE_LIST:
            self.mode, self._silences = RequestMode.STREAM, 0


def _is_too_large_version(error: ApiError) -> bool:
    """Whether the server has not reached the requested version: a Timeout with a cause, or only the message."""
    return "ResourceVersionTooLarge" in error.cause_reasons or "Too large resource version" in error.message
