"""What owners of gangs do when the server fails them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from chaos.owner import Owners
from helpers.httpserver import Answer, HttpServer, Request
from helpers.poll import eventually
from localcluster.api import Api


class Server:
    """Refuses the first patch, and all that is no patch."""

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


def test_what_was_said_last_counts_though_the_first_could_not_be_written(server: Server, owners: Owners) -> None:
    owners.suspend("g", value=True)
    owners.suspend("g", value=False)
    eventually(lambda: len(server.patches) == 3)
    assert server.patches == [True, False, False]
