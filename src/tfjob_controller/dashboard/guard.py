"""Decides about every request before a page sees it, and adds the headers that browsers enforce.

In this order: the Host header (a name that an attacker resolves to this address is refused: DNS rebinding; browsers
resolve no loopback name by DNS, so those are accepted with any port, as that of a port-forward), the size of the body,
the session, and for every method that changes something the token against forged requests (CSRF) and the Origin header.
Written as plain ASGI, because responses that stream must pass unchanged.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from tfjob_controller.dashboard.tokens import identity_of, token_of_header
from tfjob_controller.dashboard.users import BrowserSession, BrowserSessions

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "tfjob-dashboard"
HOST_PREFIX = "__Host-"
CSRF_HEADER, CSRF_FIELD = "x-csrf-token", "csrf_token"
# The form of a new job has a whole manifest; whatever else a browser sends is short, such as a token.
MAX_BODY_BYTES, MAX_SHORT_BYTES = 600_000, 65_536
_SAFE_METHODS = ("GET", "HEAD")
# Pages and files that need no session.
_OPEN_PATHS = ("/login", "/healthz")
# Pages that check the token themselves, since it may be a field of their form.
_FORM_PATHS = ("/new",)
_STATIC = "/static/"
_LOOPBACK = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?")
FIRST_PAGE = "/jobs"
_NOT_SERVED = (
    "This dashboard is not served under the host name of this request: open it as localhost, or add the name, and its "
    "port if the address has one, to the flag --hosts of the dashboard."
)
_PAGE = re.compile(r"/(?:jobs|new|queue|cluster|compare|history|use)(?:[/?][!-\[\]-~]*)?")
_MAX_TARGET = 2000
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With "no-referrer" browsers would also hide the origin of forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """`hosts` are the values of the Host header that are accepted beside those of loopback; in lower case.

    `is_secure` and `has_tls` are those of `own_origins`. With `token_header` a session counts only together with its
    own token in that header of a proxy. `cookie` is the name of the cookie.
    """

    def __init__(
        self,
        app: App,
        *,
        sessions: BrowserSessions,
        hosts: Sequence[str],
        token_header: str = "",
        cookie: str = COOKIE,
        is_secure: bool = False,
        has_tls: bool = False,
    ) -> None:
        self._app = app
        self._is_secure = is_secure
        self._has_tls = has_tls
        self._sessions = sessions
        self._hosts = frozenset(hosts)
        self._token_header = token_header
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._answer(scope)
        if answer is not None:
            await answer(scope, receive, _with_headers(send, scope["path"]))
            return
        await self._app(scope, _limited(receive, _max_bytes(scope["path"])), _with_headers(send, scope["path"]))

    def _answer(self, scope: Scope) -> Response | None:
        """The response that ends the request here; None to let it pass."""
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            return _refusal(400, "A request has one Host field.")
        host = hosts[0].lower()
        if host not in self._hosts and not _LOOPBACK.fullmatch(host):
            return _refusal(421, _NOT_SERVED)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > _max_bytes(path):
            return _refusal(413, _too_large(_max_bytes(path)))
        session = self._session(Request(scope))
        state = scope.setdefault("state", {})
        state["session"] = session
        if session is not None and (connection := state.get("connection")) is not None:
            connection.belongs_to(session.user.person)
        if method not in _SAFE_METHODS and not self._has_own_origin(headers, host):
            return _refusal(403, "The request comes from another site.")
        if path in _OPEN_PATHS or path.startswith(_STATIC):
            return None
        if session is None:
            return to_login(Request(scope))
        if path in _FORM_PATHS:
            return None
        if method not in _SAFE_METHODS and not is_token_of(session, headers.get(CSRF_HEADER, "")):
            return _refusal(403, "The request has no valid token: reload the page and try again.")
        return None

    def _has_own_origin(self, headers: Headers, host: str) -> bool:
        """Browsers send Origin with every request that changes something; programs without a browser need not."""
        origin = headers.get("origin")
        own = own_origins(host, is_secure=self._is_secure, has_tls=self._has_tls)
        return origin is None or origin.lower() in own

    def _session(self, request: Request) -> BrowserSession | None:
        session = self._sessions.find(request.cookies.get(self._cookie, ""))
        if session is None or not self._token_header:
            return session
        return session if _is_of_proxy(session, request.headers.get(self._token_header, "")) else None


def _is_of_proxy(session: BrowserSession, header: str) -> bool:
    return hmac.compare_digest(session.user.identity, identity_of(token_of_header(header)))


def is_token_of(session: BrowserSession, token: str) -> bool:
    return hmac.compare_digest(session.csrf_token.encode(), token.encode())


def own_origins(host: str, *, is_secure: bool, has_tls: bool) -> Collection[str]:
    """The origins of pages under a host. `has_tls`: TLS ends here, so that there is no page without it.

    With cookies for TLS only (`is_secure`), a proxy ends TLS, or the browser is on this machine.
    """
    if not is_secure:
        return (f"http://{host}",)
    is_on_this_machine = not has_tls and _LOOPBACK.fullmatch(host) is not None
    return (f"https://{host}", f"http://{host}") if is_on_this_machine else (f"https://{host}",)


def to_login(request: Request) -> Response:
    """Leads a browser to the login, and from there back to the page that it shows."""
    is_fragment = bool(request.headers.get("hx-request"))
    try:
        shown = urlsplit(request.headers.get("hx-current-url", "") if is_fragment else str(request.url))
    except ValueError:
        shown = urlsplit("")
    back = f"{shown.path}?{shown.query}" if shown.query else shown.path
    leads_back = (is_fragment or request.method in _SAFE_METHODS) and back != FIRST_PAGE and is_page(back)
    target = f"/login?{urlencode({'next': back})}" if leads_back else "/login"
    if is_fragment or "text/event-stream" in request.headers.get("accept", ""):
        return Response(status_code=401, headers={"HX-Redirect": target})
    return RedirectResponse(target, 303)


def is_page(target: str) -> bool:
    """Whether a browser may be led to this address after its login: one of the dashboard's own pages."""
    return len(target) <= _MAX_TARGET and _PAGE.fullmatch(target) is not None


def _refusal(status: int, message: str) -> Response:
    return PlainTextResponse(f"{message}\n", status)


def _max_bytes(path: str) -> int:
    return MAX_BODY_BYTES if path in _FORM_PATHS else MAX_SHORT_BYTES


def _too_large(limit: int) -> str:
    return f"The request is too large: at most {limit} bytes are read."


def _limited(receive: Receive, limit: int) -> Receive:
    """Ends a body without a declared length at the limit."""
    taken = 0

    async def limited() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit:
            raise HTTPException(413, _too_large(limit))
        return message

    return limited


def _with_headers(send: Send, path: str) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(_HEADERS)
            if not path.startswith(_STATIC):
                headers["Cache-Control"] = "no-store"
        await send(message)

    return with_headers
