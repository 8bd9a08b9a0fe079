"""How a browser gets a session: by a one-time link, with a token in a form, or by the header of a proxy."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tfjob_controller.client.errors import ClientError
from tfjob_controller.dashboard.guard import COOKIE, FIRST_PAGE, is_page, to_login
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.pages.forms import fields_of
from tfjob_controller.dashboard.tokens import TokenUsers, token_of_header
from tfjob_controller.dashboard.users import LIFETIME_SECONDS, BrowserSessions, User

_REJECTED = "The cluster no longer accepts your token: it has expired, or was withdrawn. Log in again."


class OneTimeLink:
    """The login of `kubectl tfjob dashboard`: one person, and a token that can be used once."""

    def __init__(self, user: User, token: str) -> None:
        self._user = user
        self._lock = threading.Lock()
        self._token = token.encode()

    def user(self, token: str) -> User | None:
        """The person, if the token is the one that was printed and has not been used."""
        with self._lock:
            is_right = bool(self._token) and hmac.compare_digest(self._token, token.encode())
            if is_right:
                self._token = b""
        return self._user if is_right else None


@dataclass(frozen=True, slots=True)
class Logins:
    """The ways to log in: either `link`, or tokens in a form or in the header `token_header` of a proxy."""

    link: OneTimeLink | None = None
    tokens: TokenUsers | None = None
    token_header: str = ""

    @property
    def has_form(self) -> bool:
        return self.tokens is not None and not self.token_header

    def user_of_header(self, headers: Mapping[str, str]) -> User | None:
        """The person whom a proxy names. Raises `ClientError`."""
        if self.tokens is None or not (token := token_of_header(headers.get(self.token_header, ""))):
            return None
        return self.tokens.user(token)


class LoginPages:
    """`/login` and `/logout`. `is_secure`: whether the cookie, which has the name `cookie`, is only sent over TLS."""

    def __init__(self, sessions: BrowserSessions, logins: Logins, *, is_secure: bool, cookie: str = COOKIE) -> None:
        self._sessions = sessions
        self._logins = logins
        self._is_secure = is_secure
        self._cookie = cookie

    def login(self, request: Request) -> Response:
        token = request.query_params.get("token", "")
        link = self._logins.link
        try:
            user = link.user(token) if link is not None and token else self._logins.user_of_header(request.headers)
        except ClientError as error:
            return self._page(request, 401, str(error))
        if user is not None:
            return self._with_session(user, request.query_params.get("next", ""))
        if request.state.session is not None and not self._logins.token_header:
            return RedirectResponse(_target(request.query_params.get("next", "")), 303)
        if token:
            words = "This link was used before, or it is not the one that was printed. A link can be used once."
            return self._page(request, 401, words)
        words = _REJECTED if self._sessions.was_rejected(request.cookies.get(self._cookie, "")) else ""
        return self._page(request, 401 if self._logins.token_header else 200, words)

    def log_in_again(self, request: Request) -> Response:
        """Ends the sessions of a person whose credentials the API server rejects, and leads to the login."""
        self._sessions.end_all_of(rendering.user_of(request))
        return to_login(request)

    async def submit(self, request: Request) -> Response:
        """The form with a token."""
        tokens = self._logins.tokens
        if tokens is None or not self._logins.has_form:
            return self._page(request, 404)
        following = ""
        try:
            form = fields_of(await request.body())
            following = form.get("next", "")
            user = await run_in_threadpool(tokens.user, form.get("token", "").strip())
        except ClientError as error:
            return self._page(request, 401, str(error), following)
        return self._with_session(user, following)

    def logout(self, request: Request) -> Response:
        self._sessions.end(request.cookies.get(self._cookie, ""))
        # htmx follows a redirect itself, and the page would stay.
        response = Response(status_code=204, headers={"HX-Redirect": "/login"})
        response.delete_cookie(self._cookie, httponly=True, samesite="strict", secure=self._is_secure)
        return response

    def _page(self, request: Request, status: int, words: str = "", following: str = "") -> Response:
        following = following or request.query_params.get("next", "")
        return rendering.page(request, "login.html", status, words=words, logins=self._logins, following=following)

    def _with_session(self, user: User, following: str) -> Response:
        response = RedirectResponse(_target(following), 303)
        response.set_cookie(
            self._cookie,
            self._sessions.start(user),
            max_age=int(LIFETIME_SECONDS),
            httponly=True,
            samesite="strict",
            secure=self._is_secure,
        )
        return response


def _target(following: str) -> str:
    """The page to show after the login: the one that was asked for, never an address of another site."""
    return following if is_page(following) else FIRST_PAGE
