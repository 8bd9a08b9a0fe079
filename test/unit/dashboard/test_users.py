"""BrowserSessions of browsers, the one-time login, and what a person may do."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from helpers.fakeclock import FakeClock
from helpers.scripted import Answer, ScriptedRequester
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.client.errors import CLOSED
from tfjob_controller.dashboard.app import create_app
from tfjob_controller.dashboard.guard import COOKIE
from tfjob_controller.dashboard.pages.login import Logins, OneTimeLink
from tfjob_controller.dashboard.users import IDLE_SECONDS, LIFETIME_SECONDS, BrowserSessions, User
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError

HOST = "127.0.0.1:8001"


def user(*answers: Answer, clock: FakeClock | None = None) -> User:
    return User("me", ScriptedRequester(*answers), "ns", "there", clock or FakeClock())


def test_a_session_is_found_by_its_secret_alone() -> None:
    sessions = BrowserSessions(FakeClock())
    secret = sessions.start(user())
    found = sessions.find(secret)
    assert found is not None
    assert [sessions.find(each) for each in ("", secret[:-1], found.csrf_token)] == [None] * 3


def test_a_session_ends_when_it_is_idle_or_old() -> None:
    clock = FakeClock()
    sessions = BrowserSessions(clock)
    idle, old = sessions.start(user()), sessions.start(user())
    for _ in range(int(LIFETIME_SECONDS / IDLE_SECONDS) * 2 - 1):
        clock.advance(IDLE_SECONDS / 2 + 1)
        assert sessions.find(old) is not None
    assert sessions.find(idle) is None
    clock.advance(IDLE_SECONDS / 2)
    assert sessions.find(old) is None


def test_the_longest_idle_session_makes_way_and_closes_its_connection() -> None:
    clock, closed = FakeClock(), list[str]()

    def closing(name: str) -> User:
        return User(name, ScriptedRequester(), "ns", "there", clock, lambda: closed.append(name))

    sessions = BrowserSessions(clock, total=2)
    secrets = []
    for name in ("a", "b"):
        secrets.append(sessions.start(closing(name)))
        clock.advance(1)
    sessions.find(secrets[0])
    sessions.start(closing("c"))
    assert (closed, sessions.find(secrets[1])) == (["b"], None)


def test_all_sessions_of_rejected_credentials_end_at_once() -> None:
    closed = list[str]()

    def closing(name: str) -> User:
        return User(name, ScriptedRequester(), "ns", "there", FakeClock(), lambda: closed.append(name))

    sessions, rejected, other = BrowserSessions(FakeClock()), closing("rejected"), closing("other")
    secrets = [sessions.start(each) for each in (rejected, rejected, other)]
    sessions.end_all_of(rejected)
    assert [sessions.find(each) is None for each in secrets] == [True, True, False]
    assert set(closed) == {"rejected"}
    assert [sessions.was_rejected(each) for each in (*secrets, "")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("answer", "is_rejected"),
    [
        (b"{}", False),
        (ApiError(401, "Unauthorized", "no"), True),
        (ApiError(NO_RESPONSE, CLOSED, "the transport is closed"), True),
        (ApiError(NO_RESPONSE, "", "away"), False),
        (ApiError(403, "Forbidden", "no"), False),
    ],
)
def test_credentials_are_rejected_only_if_the_api_server_says_so(answer: Answer, is_rejected: bool) -> None:
    assert user(answer).is_rejected() is is_rejected


def test_what_a_person_may_do_is_asked_once_a_minute() -> None:
    clock = FakeClock()
    answers = [json.dumps({"status": {"allowed": allowed}}).encode() for allowed in (True, False)]
    person = user(*answers, clock=clock)
    assert [person.may("delete", TFJOBS, "ns") for _ in range(3)] == [True] * 3
    clock.advance(61)
    assert not person.may("delete", TFJOBS, "ns")


@pytest.mark.parametrize(
    ("username", "may_list_all", "is_chosen", "first"),
    [
        ("system:serviceaccount:team:ann", False, False, "team"),
        ("system:serviceaccount:team:ann", True, False, "default"),
        ("system:serviceaccount:team:ann", False, True, "default"),
        ("ann", False, False, "default"),
        ("", False, False, "default"),
    ],
)
def test_an_account_without_rights_elsewhere_begins_with_its_own_namespace(
    username: str, may_list_all: bool, is_chosen: bool, first: str
) -> None:
    who: Answer = json.dumps({"status": {"userInfo": {"username": username}}}).encode()
    if not username:
        who = ApiError(NO_RESPONSE, "", "away")
    reviews = [json.dumps({"status": {"allowed": may_list_all}}).encode()] * 20
    person = User(
        "me", ScriptedRequester(who, *reviews), "default", "there", FakeClock(), is_namespace_chosen=is_chosen
    )
    assert person.first_namespace() == first


def test_the_printed_address_can_be_used_once() -> None:
    app = create_app(Logins(link=OneTimeLink(user(), "secret")), [HOST], FakeClock(), is_secure=False)
    first, second = (TestClient(app, base_url=f"http://{HOST}", follow_redirects=False) for _ in range(2))
    answer = first.get("/login?token=secret")
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")
    cookie = answer.headers["set-cookie"].lower()
    assert [word in cookie for word in ("httponly", "samesite=strict", COOKIE)] == [True] * 3
    refused = second.get("/login?token=secret")
    assert (refused.status_code, "used before" in refused.text, "set-cookie" in refused.headers) == (401, True, False)
    assert second.get("/login?token=").status_code == 200
