"""How a browser gets a session: by the one-time token of a dashboard on loopback, or with a token of the cluster."""

from __future__ import annotations

import hmac
import threading

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tfjob_controller.dashboard.guard import COOKIE
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.users import LIFETIME_SECONDS, BrowserSessions, User


class OneTimeLogin:
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


class LoginPages:
    """`/login` and `/logout`. `is_secure`: whether browsers reach the dashboard over TLS."""

    def __init__(self, sessions: BrowserSessions, login: OneTimeLogin, *, is_secure: bool) -> None:
        self._sessions = sessions
        self._login = login
        self._is_secure = is_secure

    def login(self, request: Request) -> Response:
        token = request.query_params.get("token", "")
        user = self._login.user(token) if token else None
        if user is None:
            if request.state.session is not None:
                return RedirectResponse("/jobs", 303)
            return rendering.page(request, "login.html", 401 if token else 200, was_used=bool(token))
        return self._with_session(user)

    def logout(self, request: Request) -> Response:
        self._sessions.end(request.cookies.get(COOKIE, ""))
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=self._is_secure)
        return response

    def _with_session(self, user: User) -> Response:
        response = RedirectResponse("/jobs", 303)
        response.set_cookie(
            COOKIE,
            self._sessions.start(user),
            max_age=int(LIFETIME_SECONDS),
            httponly=True,
            samesite="strict",
            secure=self._is_secure,
        )
        return response
