"""Server-sent events whatever the text, and readings that browsers share."""

from __future__ import annotations

import asyncio
import threading

import pytest
from starlette.testclient import TestClient

from helpers.fakeclock import FakeClock
from helpers.scripted import ScriptedRequester
from tfjob_controller.dashboard.app import create_app
from tfjob_controller.dashboard.pages.login import Logins, OneTimeLink
from tfjob_controller.dashboard.pages.rendering import event, sparkline
from tfjob_controller.dashboard.services import Readings
from tfjob_controller.dashboard.turns import PersonTurns
from tfjob_controller.dashboard.users import User


def readings_of(clock: FakeClock) -> Readings[int]:
    return Readings(clock, PersonTurns("read", threads=2, each=2, waiting=4))


def person() -> User:
    return User("me", ScriptedRequester(), "ns", "there", FakeClock())


@pytest.mark.parametrize(
    ("body", "data"),
    [
        pytest.param("a\n\nb", ["a", "", "b"], id="an empty line"),
        pytest.param("a\n", ["a", ""], id="an empty line at the end"),
        pytest.param("a\revent: jobs\r\rdata: b\r\nc", ["a", "event: jobs", "", "data: b", "c"], id="other line ends"),
    ],
)
def test_each_line_of_an_event_is_data(body: str, data: list[str]) -> None:
    head, *lines = event("lines", body).decode().removesuffix("\n\n").split("\n")
    assert head == "event: lines"
    assert lines == [f"data: {each}" for each in data]


@pytest.mark.parametrize(
    ("values", "points"),
    [
        ([1.0, 3.0, 2.0], "0.0,17.0 40.0,1.0 80.0,9.0"),
        ([float("nan"), 1.0, float("inf"), 2.0], "0.0,17.0 80.0,1.0"),
        ([-1.7e308, 1.7e308], "0.0,17.0 80.0,1.0"),
        ([0.0, 5e-324, 1e-320], "0.0,17.0 40.0,17.0 80.0,1.0"),
        ([1.0, float("nan")], ""),
        ([2.0, 2.0], "0.0,17.0 80.0,17.0"),
    ],
)
def test_a_line_of_losses_has_finite_points(values: list[float], points: str) -> None:
    assert sparkline(values) == points


@pytest.mark.anyio
async def test_callers_at_the_same_time_share_one_reading_and_no_others_wait_for_it() -> None:
    readings, go, calls = readings_of(FakeClock()), threading.Event(), list[str]()
    user = person()

    def read() -> int:
        calls.append("read")
        assert go.wait(60)
        return 7

    callers = [asyncio.ensure_future(readings.get(user, "key", read)) for _ in range(4)]
    assert await readings.get(user, "other key", lambda: 8) == 8
    callers[0].cancel()
    go.set()
    assert await asyncio.gather(*callers[1:]) == [7] * 3
    assert calls == ["read"]


@pytest.mark.anyio
async def test_a_reading_is_repeated_after_a_moment() -> None:
    clock = FakeClock()
    readings, values, user = readings_of(clock), iter((1, 2)), person()
    assert [await readings.get(user, "key", lambda: next(values)) for _ in range(3)] == [1] * 3
    clock.advance(2)
    assert await readings.get(user, "key", lambda: next(values)) == 2


@pytest.mark.anyio
async def test_an_error_is_not_kept() -> None:
    readings, user = readings_of(FakeClock()), person()

    def fail() -> int:
        raise ValueError("once")

    with pytest.raises(ValueError, match="once"):
        await readings.get(user, "key", fail)
    assert await readings.get(user, "key", lambda: 3) == 3


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/jobs?namespace=../x", 200, "is not a valid namespace"),
        ("/events/jobs?namespace=a/b", 400, "is not a valid namespace"),
        ("/jobs/%2E%2E/tfjob/x", 404, "no such page"),
        ("/metrics/ns/tfjob/..%2Fsecrets", 404, "no such page"),
    ],
)
def test_no_text_of_an_address_leads_to_another_path_of_the_api_server(path: str, status: int, words: str) -> None:
    requester, host = ScriptedRequester(), "127.0.0.1:8001"
    user = User("me", requester, "ns", "there", FakeClock())
    app = create_app(Logins(link=OneTimeLink(user, "secret")), [host], FakeClock(), is_secure=False)
    with TestClient(app, base_url=f"http://{host}") as browser:
        browser.cookies.update(browser.get("/login?token=secret", follow_redirects=False).cookies)
        answer = browser.get(path)
    assert (answer.status_code, words in answer.text) == (status, True)
    assert requester.paths == []
