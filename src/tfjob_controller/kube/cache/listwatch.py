"""Which request keeps a copy of a collection up to date: list or watch, and from where.

Theory of operation. `ListWatchState` knows which of three requests comes next, and what the outcome of each means:

    STREAM ─ initial events end ─▶ WATCH ─ 410, 404, twice silent, ERROR event 5xx ─▶ STREAM
       │                             ▲  └─ ended, broken, 429, 5xx: WATCH again from the last version
       └ refused (400, 422, …) ─▶ LIST ─ last page ─┘

- STREAM is a watch that begins with all present objects (`sendInitialEvents`): no big answer to hold in memory, and its
  connection goes on as the watch. A server that knows no streaming lists refuses it as invalid, then LIST does the same
  in pages; one that twice ends it before its end as well.
- The first LIST asks for `resourceVersion=0` (whatever the server has at hand); a later one for at least the last
  version seen, unpaged, since only so it is answered from the server's cache. STREAM: the newest, then at least the
  last version.
- 410 (the version was compacted away) and "too large resource version" (this server has not seen it) on a list mean
  that the version is of no use: the next asks for the newest, whatever it is. A 410 on a watch only means to list.
- A refusal never drops what is known. 429, 5xx and a lost connection rest and watch again from the last version: no
  relist, which is what a server that just came up needs least. 404 lists again, since a kind that went away took its
  objects with it. A 5xx *inside* a watch means that the server cannot show one change; the same place would fail again,
  so this lists too.
- A watch that was silent until its read timed out may have lost its connection. Twice in a row, and the server does not
  know our version (its store was set back), for it sends a bookmark each minute otherwise: list.

It does no I/O and knows no time; the reflector asks it, does as it says, and tells it what came of that.

Threads: none; one thread owns one. Source: client-go tools/cache/reflector.go; apimachinery
pkg/apis/meta/internalversion/validation (what is refused); apiserver pkg/storage/cacher (bookmarks, versions).
"""

from __future__ import annotations

import enum

from tfjob_controller.kube.errors import ApiError

# client-go's pager. Servers that answer from their cache ignore it for version 0.
PAGE_SIZE = 500
# One silence may be a lost connection.
_SILENCES_BEFORE_LIST = 2
_CUTS_BEFORE_LIST = 2
# How a server or a proxy says that it does not know the parameters of a streaming list; 422 is what apiservers say.
_NOT_UNDERSTOOD = frozenset({400, 405, 406, 415, 422, 501})


class RequestMode(enum.Enum):
    """The request that comes next."""

    STREAM = "streaming list"
    LIST = "list"
    WATCH = "watch"


class ListWatchState:
    """Which request comes next, from what came of the last; no I/O."""

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
        """A whole list has been taken: watch from there."""
        self.mode, self.version = RequestMode.WATCH, version
        self._want_newest = False
        self._silences = self._cuts = 0

    def record_progress(self, version: int) -> None:
        """A watch brought everything up to this version."""
        self.version = version
        self._silences = 0

    def record_failure(self, error: ApiError, *, opened: bool = False, silent: bool = False) -> None:
        """A request failed; `opened`: after its answer had begun; `silent`: which then brought nothing in time."""
        if error.is_gone or _is_too_large_version(error):
            self._version_refused()
        elif self.mode is RequestMode.STREAM and error.status in _NOT_UNDERSTOOD:
            self.mode = RequestMode.LIST
        elif self.mode is RequestMode.STREAM and opened:
            self._cut()
        elif self.mode is RequestMode.WATCH and (error.is_not_found or (opened and error.is_server_error)):
            self.mode = RequestMode.STREAM
        elif self.mode is RequestMode.WATCH and silent:
            self._silent()

    def restart(self) -> None:
        """Something unforeseen happened while events were applied: take everything anew."""
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
    """Whether the server has not got as far as the version asked for: a Timeout with a cause, or only the words."""
    return "ResourceVersionTooLarge" in error.cause_reasons or "Too large resource version" in error.message
