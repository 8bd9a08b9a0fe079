"""The rules of programs/gangscheduler.py that need no cluster."""

from __future__ import annotations

import threading
from pathlib import Path

from helpers.barekubeconfig import kubeconfig_for
from helpers.httpserver import Answer, HttpServer, Request, status_answer
from helpers.poll import eventually
from tfjob_controller.flags import BindAddress
from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.options import ExtenderOptions
from tfjob_controller.programs.gangscheduler import GangScheduler


def test_a_stop_before_the_api_server_answered_ends_without_a_trace(tmp_path: Path) -> None:
    def refuse(_: Request) -> Answer:
        return status_answer(503, "ServiceUnavailable")

    before = {thread.name for thread in threading.enumerate()}
    stop = threading.Event()
    with HttpServer(refuse) as server:
        options = ExtenderOptions(
            extender_bind_address=BindAddress("127.0.0.1", 0), metrics_bind_address=None, health_probe_bind_address=None
        )
        scheduler = GangScheduler(options, load_config(str(kubeconfig_for(server.url, tmp_path))), stop=stop)
        timer = threading.Timer(0.3, stop.set)
        timer.start()
        scheduler.run()
        timer.join()
    assert scheduler.problems()
    eventually(lambda: {thread.name for thread in threading.enumerate()} <= before)
