"""Tests of chaos.owner: retries after a failed request."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from chaos.owner import Owners
from helpers.httpserver import Answer, HttpServer, Request
from helpers.poll import eventually
from localcluster.api import Api


class Server:
    """Rejects the first PATCH and all other methods."""

    def __init__(self) -> None:
        self.patches: list[object] = []

    def respond(self, request: Request) -> Answer:
        if request.method != "PATCH":
            return Answer(404)
        self.patches.append(json.loads(request.body)["spec"]["suspend"])
        return Answer(500 if len(self.patches) == 1 else 200)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def owners(server: Server) -> Iterator[Owners]:
    with HttpServer(server.respond) as started:
        owners = Owners(Api(started.url, ca=None), "ns", "gang-scheduler", workers=1)
        owners.start()
        yield owners
        owners.stop()


def test_the_last_suspend_call_takes_effect_after_a_failed_request(server: Server, owners: Owners) -> None:
    owners.suspend("g", value=True)
    owners.suspend("g", value=False)
    eventually(lambda: len(server.patches) == 3)
    assert server.patches == [True, False, False]
