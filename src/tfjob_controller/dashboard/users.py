"""The people who use the dashboard: each has a connection to the API server with their own credentials.

A session is found by the hash of the secret in its cookie. Sessions end after `IDLE_SECONDS` without a request and
after `LIFETIME_SECONDS` in any case; a person has at most `SESSIONS_EACH` and all have `MAX_SESSIONS`, and the one that
was idle longest makes way for a new one (`shares`). Credentials are kept in memory only, are never logged, and are gone
with the session.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from cachetools import TTLCache

from tfjob_controller.client.client import Client
from tfjob_controller.client.errors import CLOSED
from tfjob_controller.client.kinds import OWN_KINDS
from tfjob_controller.dashboard.shares import Shares, namespace_of_account
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.accessreviews import may
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import Object, Resource
from tfjob_controller.kube.names import SYSTEM_NAMESPACE
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock

IDLE_SECONDS = 8 * 3600.0
LIFETIME_SECONDS = 24 * 3600.0
# Sessions of one person, and of all.
SESSIONS_EACH, MAX_SESSIONS = 10, 200
_ACCESS_SECONDS = 60.0
_MAX_ACCESS_REVIEWS = 1000
_SELF_REVIEWS: Resource[Any] = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""


class _SelfReviewStatus(msgspec.Struct, frozen=True, rename="camel"):
    user_info: _UserInfo = _UserInfo()


class _SelfReview(msgspec.Struct, frozen=True):
    status: _SelfReviewStatus = _SelfReviewStatus()


def username_of(requester: Requester) -> str:
    """Returns the name by which the API server knows the credentials. Raises `ApiError`, 401 if it rejects them."""
    body = msgspec.json.encode({"apiVersion": _SELF_REVIEWS.api_version, "kind": _SELF_REVIEWS.kind})
    answer = requester.request("POST", _SELF_REVIEWS.path(), body=body, timeout_seconds=10.0, retry=False)
    return msgspec.json.decode(answer, type=_SelfReview).status.user_info.username


def must_log_in(error: ApiError) -> bool:
    """Whether only a new login helps: the credentials are rejected, or the session's connection was closed."""
    return error.is_unauthorized or error.reason == CLOSED


class User:
    """One person's connection. Thread-safe; `close` ends its requests.

    `identity` is the same for all sessions with the same credentials, so that they can share what was read. `person` is
    the username of the API server's review, by which people share the dashboard; by default it is the identity. The
    controller and the gang scheduler are installed in `controller_namespace`. `is_namespace_chosen` is False if nobody
    has named `namespace`: it is a default.
    """

    def __init__(
        self,
        identity: str,
        requester: Requester,
        namespace: str,
        origin: str,
        clock: Clock,
        close: Callable[[], None] = lambda: None,
        *,
        person: str = "",
        controller_namespace: str = SYSTEM_NAMESPACE,
        is_namespace_chosen: bool = True,
    ) -> None:
        self.identity = identity
        self.person = person or identity
        self.requester = requester
        self.namespace = namespace
        self.origin = origin
        self.controller_namespace = controller_namespace
        self._is_namespace_chosen = is_namespace_chosen
        self._known_username = person or None
        self.client = Client.over(requester, namespace, origin, "the page with all jobs", controller_namespace, clock)
        self.close = close
        self._lock = threading.Lock()
        self._allowed: TTLCache[tuple[str, ...], bool] = TTLCache(
            _MAX_ACCESS_REVIEWS, _ACCESS_SECONDS, timer=clock.monotonic
        )

    def may(self, verb: str, resource: Resource[Object], namespace: str = "", subresource: str = "") -> bool:
        """Whether the API server lets this person do that; answers are kept for a minute. Raises `ApiError`."""
        key = (verb, resource.group, resource.plural, subresource, namespace)
        with self._lock:
            if (known := self._allowed.get(key)) is not None:
                return known
        allowed = may(self.requester, verb, resource, namespace, subresource)
        with self._lock:
            self._allowed[key] = allowed
        return allowed

    def may_list_jobs(self, namespace: str) -> bool:
        """Whether this person may list jobs of a kind in a namespace, or in all of them ("").

        Raises `ApiError`, and `ClientError`.
        """
        is_own = any(self.may("list", kind.resource, namespace) for kind in OWN_KINDS)
        return is_own or any(self.may("list", kind.resource, namespace) for kind in self.client.kinds())

    def listed_kinds(self, namespace: str, known: Container[ClientKind] = ()) -> Sequence[ClientKind]:
        """The kinds that the cluster serves and this person may list in a namespace; this project's if there are none.

        The person may list those in `known`. Raises `ApiError`, and `ClientError`.
        """
        served = self.client.kinds()
        return [kind for kind in served if kind in known or self.may("list", kind.resource, namespace)] or OWN_KINDS

    def first_namespace(self) -> str:
        """The namespace that pages show before one is chosen; "" is all of them. Raises as `may_list_jobs` does.

        If none was chosen, a service account that may not list the jobs of all namespaces begins with those of its own.
        """
        if self._is_namespace_chosen:
            return self.namespace
        own = namespace_of_account(self._username())
        return self.namespace if not own or self.may_list_jobs("") else own

    def _username(self) -> str:
        """The name in the cluster, which is asked for once where the login did not tell it; empty without an answer."""
        if self._known_username is None:
            try:
                self._known_username = username_of(self.requester)
            except ApiError:
                return ""
        return self._known_username

    def is_rejected(self) -> bool:
        """Whether the API server rejects the credentials now, or the session has ended; False without an answer."""
        try:
            username_of(self.requester)
        except ApiError as error:
            return must_log_in(error)
        return False


@dataclass(slots=True)
class BrowserSession:
    """A browser of one person. `csrf_token` is part of every form and of every request that changes something."""

    user: User
    csrf_token: str
    started: float
    last_used: float = field(default=0.0)


class BrowserSessions:
    """All sessions. Thread-safe."""

    def __init__(self, clock: Clock, each: int = SESSIONS_EACH, total: int = MAX_SESSIONS) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._places: Shares[str] = Shares(each, total)
        self._sessions: dict[str, BrowserSession] = {}
        self._rejected: TTLCache[str, bool] = TTLCache(MAX_SESSIONS, LIFETIME_SECONDS, timer=clock.monotonic)

    def start(self, user: User) -> str:
        """Returns the secret for the cookie."""
        secret, now = secrets.token_urlsafe(32), self._clock.monotonic()
        key = _key(secret)
        session = BrowserSession(user, secrets.token_urlsafe(32), now, now)
        with self._lock:
            ended = self._take_expired(now)
            ended += [self._sessions.pop(lost) for lost in self._places.take(user.person, key)]
            self._sessions[key] = session
        self._close_unused(ended)
        return secret

    def find(self, secret: str) -> BrowserSession | None:
        now, key = self._clock.monotonic(), _key(secret)
        with self._lock:
            ended = self._take_expired(now)
            session = self._sessions.get(key)
            if session is not None:
                session.last_used = now
                self._places.renew(key)
        self._close_unused(ended)
        return session

    def end(self, secret: str) -> None:
        with self._lock:
            ended = self._take([key]) if (key := _key(secret)) in self._sessions else []
        self._close_unused(ended)

    def end_all_of(self, user: User) -> None:
        """Ends every session of a person whose credentials the API server no longer accepts."""
        with self._lock:
            keys = [key for key, session in self._sessions.items() if session.user is user]
            ended = self._take(keys)
            self._rejected.update(dict.fromkeys(keys, True))
        self._close_unused(ended)

    def was_rejected(self, secret: str) -> bool:
        """Whether the session of this secret was ended by `end_all_of`."""
        with self._lock:
            return _key(secret) in self._rejected

    def _take_expired(self, now: float) -> list[BrowserSession]:
        expired = [
            key
            for key, session in self._sessions.items()
            if now - session.last_used > IDLE_SECONDS or now - session.started > LIFETIME_SECONDS
        ]
        return self._take(expired)

    def _take(self, keys: list[str]) -> list[BrowserSession]:
        for key in keys:
            self._places.release(key)
        return [self._sessions.pop(key) for key in keys]

    def _close_unused(self, ended: list[BrowserSession]) -> None:
        with self._lock:
            used = {id(session.user) for session in self._sessions.values()}
        for session in ended:
            if id(session.user) not in used:
                session.user.close()


def _key(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
