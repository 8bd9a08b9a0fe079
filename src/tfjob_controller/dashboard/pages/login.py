"""Logins: a browser gets a session by a one-time link, by a token in a form, or by the header of a proxy."""

from __future__ import annotations

import hmac
import threading
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tfjob_controller.client.errors import ClientError
from tfjob_controller.dashboard.front import address_of
from tfjob_controller.dashboard.guard import COOKIE, FIRST_PAGE, is_page, to_login
from tfjob_controller.dashboard.loginrate import LoginRate
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.pages.forms import fields_of
from tfjob_controller.dashboard.tokens import TokenUsers, identity_of, token_of_header
from tfjob_controller.dashboard.turns import BusyError, PersonTurns
from tfjob_controller.dashboard.users import LIFETIME_SECONDS, BrowserSessions, User

# Logins at a time, those of one address, and how many of those wait.
_THREADS, _EACH, _WAITING = 4, 2, 8
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


class LoginPages:
    """`/login` and `/logout`. `is_secure`: whether the cookie, which has the name `cookie`, is only sent over TLS.

    Reviews of tokens run in a few threads by turns, of addresses or, behind a proxy, of tokens.
    """

    def __init__(
        self, sessions: BrowserSessions, logins: Logins, rate: LoginRate, *, is_secure: bool, cookie: str = COOKIE
    ) -> None:
        self._sessions = sessions
        self._logins = logins
        self._rate = rate
        self._turns = PersonTurns("login", threads=_THREADS, each=_EACH, waiting=_WAITING)
        self._is_secure = is_secure
        self._cookie = cookie

    async def login(self, request: Request) -> Response:
        token = request.query_params.get("token", "")
        link = self._logins.link
        try:
            user = link.user(token) if link is not None and token else await self._user_of_header(request)
        except ClientError as error:
            return self._refusal(request, error)
        if user is not None:
            return await run_in_threadpool(self._with_session, user, request.query_params.get("next", ""))
        if request.state.session is not None and not self._logins.token_header:
            return RedirectResponse(_target(request.query_params.get("next", "")), 303)
        if token:
            message = "This link was used before, or it is not the one that was printed. A link can be used once."
            return self._page(request, 401, message)
        message = _REJECTED if self._sessions.was_rejected(request.cookies.get(self._cookie, "")) else ""
        return self._page(request, 401 if self._logins.token_header else 200, message)

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
            user = await self._verified(request, tokens, form.get("token", "").strip())
        except ClientError as error:
            return self._refusal(request, error, following)
        return await run_in_threadpool(self._with_session, user, following)

    def logout(self, request: Request) -> Response:
        self._sessions.end(request.cookies.get(self._cookie, ""))
        # htmx follows a redirect itself, and the page would stay.
        response = Response(status_code=204, headers={"HX-Redirect": "/login"})
        response.delete_cookie(self._cookie, httponly=True, samesite="strict", secure=self._is_secure)
        return response

    async def _user_of_header(self, request: Request) -> User | None:
        """The person whom a proxy names. Raises `ClientError`."""
        token = token_of_header(request.headers.get(self._logins.token_header, ""))
        return await self._verified(request, self._logins.tokens, token) if self._logins.tokens and token else None

    async def _verified(self, request: Request, tokens: TokenUsers, token: str) -> User:
        """Raises `ClientError`."""
        # All people behind a proxy have its address.
        client = None if self._logins.token_header else request.client
        address = "" if client is None else address_of(client.host)

        def verify() -> User:
            with self._rate.trying(address):
                return tokens.user(token)

        return await self._turns.run(address or identity_of(token), verify)

    def _refusal(self, request: Request, error: ClientError, following: str = "") -> Response:
        return self._page(request, 429 if isinstance(error, BusyError) else 401, str(error), following)

    def _page(self, request: Request, status: int, message: str = "", following: str = "") -> Response:
        following = following or request.query_params.get("next", "")
        return rendering.page(request, "login.html", status, message=message, logins=self._logins, following=following)

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
