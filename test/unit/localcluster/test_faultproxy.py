"""The proxy of faults, where tests of its users do not show what it does."""

from __future__ import annotations

import time

import pytest
import urllib3

from helpers.httpserver import Answer, HttpServer
from localcluster.faultproxy import Fault, FaultProxy, Late, LoseRequest, Reply


def test_a_delayed_response_comes_after_the_request_was_processed() -> None:
    with HttpServer(lambda _: Answer()) as server, FaultProxy(server.url) as proxy:
        proxy.next(Late(0.3))
        begin = time.monotonic()
        assert urllib3.request("GET", proxy.url, retries=False).status == 200
        assert time.monotonic() - begin >= 0.3
        assert [seen.fault for seen in proxy.seen] == [Late(0.3)]


@pytest.mark.parametrize(
    ("path", "status"), [pytest.param("/hit", 429, id="chosen"), pytest.param("/spared", 200, id="not-chosen")]
)
def test_without_a_requested_fault_one_is_chosen(path: str, status: int) -> None:
    def choose(method: str, path: str) -> Fault | None:
        return Reply(429) if (method, path) == ("POST", "/hit") else None

    with HttpServer(lambda _: Answer()) as server, FaultProxy(server.url) as proxy:
        proxy.choose = choose
        assert urllib3.request("POST", proxy.url + path, retries=False).status == status


def test_a_requested_fault_comes_before_chosen_ones() -> None:
    with HttpServer(lambda _: Answer()) as server, FaultProxy(server.url) as proxy:
        proxy.choose = lambda method, path: LoseRequest()
        proxy.next(Reply(500))
        assert urllib3.request("GET", proxy.url, retries=False).status == 500
        with pytest.raises(urllib3.exceptions.HTTPError):
            urllib3.request("GET", proxy.url, retries=False)
