"""The rules of programs/manager.py that need no cluster."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from helpers.barekubeconfig import kubeconfig_for
from helpers.httpserver import Answer, HttpServer, Request, status_answer
from helpers.poll import eventually
from helpers.scripted import ScriptedRequester
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.kube.client import server_version
from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.options import RunOptions
from tfjob_controller.programs.manager import Manager


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        pytest.param(b'{"major": "1", "minor": "36", "gitVersion": "v1.36.3"}', (1, 36), id="plain"),
        pytest.param(b'{"major": "1", "minor": "35+"}', (1, 35), id="as vendors write it"),
        pytest.param(
            b'{"major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "34"}', (1, 34), id="emulating"
        ),
        pytest.param(b'{"major": "1", "minor": "36", "emulationMajor": "", "emulationMinor": ""}', (1, 36), id="not"),
        pytest.param(b'{"major": "", "minor": ""}', (0, 0), id="empty"),
        pytest.param(b"<html>", (0, 0), id="something else"),
        pytest.param(ApiError(403, "Forbidden", "no"), (0, 0), id="not told"),
    ],
)
def test_the_servers_version(answer: bytes | ApiError, version: tuple[int, int]) -> None:
    assert server_version(ScriptedRequester(answer)) == version


def test_a_server_that_does_not_answer_has_no_version_yet() -> None:
    with pytest.raises(ApiError):
        server_version(ScriptedRequester(ApiError(0, "NotConnected", "refused")))


def test_a_stop_before_the_api_server_answered_ends_without_a_trace(tmp_path: Path) -> None:
    def refuse(_: Request) -> Answer:
        return status_answer(503, "ServiceUnavailable")

    before = {thread.name for thread in threading.enumerate()}
    stop = threading.Event()
    with HttpServer(refuse) as server:
        options = RunOptions(metrics_bind_address=None, health_probe_bind_address=None, leader_elect=True)
        config = load_config(str(kubeconfig_for(server.url, tmp_path)))
        manager = Manager(options, config, ControllerConfig(), stop=stop)
        timer = threading.Timer(0.3, stop.set)
        timer.start()
        assert manager.run() == 0
        timer.join()
    # Threads of the server that answered end in their own time.
    eventually(lambda: not {thread.name for thread in threading.enumerate()} - before)
    assert "503" in manager.problems()[0]
