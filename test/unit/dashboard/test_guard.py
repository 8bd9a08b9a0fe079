"""What reaches a page of the dashboard: the right host name, a session, a token for each change, and a bounded body."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from helpers.fakeclock import FakeClock
from helpers.scripted import ScriptedRequester
from tfjob_controller.dashboard.guard import (
    COOKIE,
    CSRF_HEADER,
    MAX_BODY_BYTES,
    MAX_SHORT_BYTES,
    Guard,
    is_page,
    own_origins,
)
from tfjob_controller.dashboard.tokens import identity_of
from tfjob_controller.dashboard.users import BrowserSessions, User

HOST = "127.0.0.1:8001"
TOKEN = "secret"


async def read(request: Request) -> Response:
    return PlainTextResponse(f"{request.method} {len(await request.body())}")


class Site:
    """A page behind the guard, and a browser with a session and one without."""

    def __init__(self, token_header: str = "") -> None:
        sessions = BrowserSessions(FakeClock())
        user = User(identity_of(TOKEN), ScriptedRequester(), "ns", "there", FakeClock())
        secret = sessions.start(user)
        session = sessions.find(secret)
        assert session is not None
        self.token = session.csrf_token
        self.cookie = f"{COOKIE}={secret}"
        self.app = app = Starlette(
            routes=[Route(path, read, methods=["GET", "POST"]) for path in ("/jobs", "/new", "/login", "/static/a.js")],
            middleware=[Middleware(Guard, sessions=sessions, hosts=[HOST], token_header=token_header)],
        )
        self.stranger = TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)
        self.browser = TestClient(app, base_url=f"http://{HOST}", follow_redirects=False, cookies={COOKIE: secret})


@pytest.fixture
def site() -> Site:
    return Site()


def test_behind_a_proxy_a_cookie_counts_only_with_its_own_token() -> None:
    site = Site(token_header="x-token")
    answers = [
        site.browser.get("/jobs", headers={"x-token": token}).status_code
        for token in (TOKEN, f"Bearer {TOKEN}", "another", "")
    ]
    assert answers == [200, 200, 303, 303]


def test_a_host_name_that_is_not_the_dashboards_is_refused(site: Site) -> None:
    for host in ("evil.example", "evil.example:8001", "localhost.evil.example:8001", "127.0.0.1.nip.io", "localhost:x"):
        answer = site.browser.get("/jobs", headers={"host": host})
        assert (answer.status_code, "--hosts" in answer.text) == (421, True), host


@pytest.mark.parametrize("host", ["localhost:9999", "127.0.0.1:9999", "[::1]:9999", "localhost"])
def test_a_forwarded_port_of_loopback_is_served_to_its_own_pages_alone(site: Site, host: str) -> None:
    headers = {"host": host, CSRF_HEADER: site.token}
    answers = [
        site.browser.post("/jobs", headers=headers | {"origin": origin}).status_code
        for origin in (f"http://{host}", "http://localhost:1", f"http://{HOST}")
    ]
    assert answers == [200, 403, 403]


def test_a_request_with_two_host_fields_is_refused(site: Site) -> None:
    own = site.browser.base_url.netloc
    request = site.browser.build_request("GET", "/jobs")
    others = [(name, value) for name, value in request.headers.raw if name.lower() != b"host"]
    request.headers = type(request.headers)([*others, *[(b"host", own)] * 2])
    assert site.browser.send(request).status_code == 400


def test_a_page_without_a_session_leads_to_the_login(site: Site) -> None:
    answer = site.stranger.get("/jobs")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")


def test_a_fragment_without_a_session_leads_the_browser_to_the_login(site: Site) -> None:
    answer = site.stranger.get("/jobs", headers={"hx-request": "true"})
    assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/login")


def test_the_login_leads_back_to_the_page_that_was_asked_for(site: Site) -> None:
    answer = site.stranger.get("/jobs?namespace=a&text=b%20c")
    assert answer.headers["location"] == "/login?next=%2Fjobs%3Fnamespace%3Da%26text%3Db%2520c"
    shown = {"hx-request": "true", "hx-current-url": f"http://{HOST}/queue?namespace=a"}
    assert site.stranger.get("/jobs", headers=shown).headers["hx-redirect"] == "/login?next=%2Fqueue%3Fnamespace%3Da"
    elsewhere = shown | {"hx-current-url": "http://evil.example//evil.example/jobs"}
    assert site.stranger.get("/jobs", headers=elsewhere).headers["hx-redirect"] == "/login"


@pytest.mark.parametrize("address", ["http://[", "//[/jobs"])
def test_a_current_address_that_is_none_leads_to_the_login_alone(site: Site, address: str) -> None:
    headers = [(b"hx-request", b"true"), (b"hx-current-url", address.encode())]
    answer = site.stranger.get("/jobs", headers=headers)
    assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/login")


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "/\\evil.example",
        "/jobs\n",
        "/logout",
        "/",
    ],
)
def test_nobody_is_led_to_another_site_after_a_login(target: str) -> None:
    assert not is_page(target)
    assert is_page("/jobs/ns/tfjob/train?text=a%20b")
    assert is_page("/use/ns/tfjob/train")
    assert is_page("/compare?job=tfjob%2Fns%2Ftrain&job=tfjob/ns/other")
    assert not is_page("/jobs?" + "x" * 3000)


def test_the_login_and_static_files_need_no_session(site: Site) -> None:
    assert [site.stranger.get(path).status_code for path in ("/login", "/static/a.js")] == [200, 200]


def test_a_change_needs_the_token_of_its_session(site: Site) -> None:
    assert site.browser.post("/jobs").status_code == 403
    assert site.browser.post("/jobs", headers={CSRF_HEADER: "x" * 43}).status_code == 403
    assert site.browser.post("/jobs", headers={CSRF_HEADER: site.token}).status_code == 200


def test_a_change_that_another_site_sends_is_refused(site: Site) -> None:
    own, other = f"http://{HOST}", "http://evil.example"
    headers = {CSRF_HEADER: site.token}
    assert site.browser.post("/jobs", headers=headers | {"origin": own}).status_code == 200
    for origin in (other, "null", f"http://{HOST}.evil.example"):
        assert site.browser.post("/jobs", headers=headers | {"origin": origin}).status_code == 403, origin


def test_a_change_that_a_page_without_tls_sends_is_refused(site: Site) -> None:
    headers = {CSRF_HEADER: site.token}
    answers = [
        site.browser.post("/jobs", headers=headers | {"origin": origin}).status_code
        for origin in (f"http://{HOST}", f"https://{HOST}", "null", "")
    ]
    assert answers == [200, 403, 403, 403]


@pytest.mark.parametrize(
    ("is_secure", "has_tls", "origins"),
    [
        pytest.param(False, False, {"http://localhost:1", "http://dash.example"}, id="one person on loopback"),
        pytest.param(True, True, {"https://localhost:1", "https://dash.example"}, id="with a certificate"),
        pytest.param(
            True, False, {"http://localhost:1", "https://localhost:1", "https://dash.example"}, id="behind a proxy"
        ),
    ],
)
def test_a_page_has_the_scheme_by_which_browsers_reach_it(is_secure: bool, has_tls: bool, origins: set[str]) -> None:
    hosts = ("localhost:1", "dash.example")
    assert {each for host in hosts for each in own_origins(host, is_secure=is_secure, has_tls=has_tls)} == origins


def test_a_body_above_the_limit_is_refused_before_it_is_read(site: Site) -> None:
    headers = {CSRF_HEADER: site.token}
    for path, limit in (("/new", MAX_BODY_BYTES), ("/jobs", MAX_SHORT_BYTES), ("/login", MAX_SHORT_BYTES)):
        assert site.browser.post(path, content=b"x" * limit, headers=headers).status_code == 200
        answer = site.browser.post(path, content=b"x" * (limit + 1), headers=headers)
        assert (answer.status_code, "too large" in answer.text) == (413, True)


def test_a_body_without_a_length_ends_at_the_limit(site: Site) -> None:
    chunk, taken = b"x" * 100_000, 0

    def chunks() -> Iterator[bytes]:
        while True:
            nonlocal taken
            taken += len(chunk)
            yield chunk

    received = chunks()

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": next(received), "more_body": True}

    sent: list[Any] = []

    async def send(message: object) -> None:
        sent.append(message)

    headers = [(b"host", HOST.encode()), (b"cookie", site.cookie.encode()), (CSRF_HEADER.encode(), site.token.encode())]
    scope = {"type": "http", "method": "POST", "path": "/jobs", "query_string": b"", "headers": headers}
    asyncio.run(site.app(scope, receive, send))
    assert sent[0]["status"] == 413
    assert taken <= MAX_BODY_BYTES + len(chunk)


def test_every_response_has_the_headers_that_browsers_enforce(site: Site) -> None:
    for client, path in ((site.browser, "/jobs"), (site.stranger, "/jobs"), (site.stranger, "/static/a.js")):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
    assert site.browser.get("/jobs").headers["cache-control"] == "no-store"
