"""All pods of the stage run and end: those of the other tenant after two seconds, hostile ones by their annotations."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from attack.stage import NODE, OTHER
from attack.victim import RUN_SECONDS
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet, by_annotations
from localcluster.podstatus import Outcome


def play(kubeconfig: Path, nodes: Sequence[str], over: Event, results: Connection) -> None:
    """Until `over`. A process of its own."""

    def behaviour(pod: dict[str, Any], attempt: int) -> Outcome:
        if pod["metadata"]["namespace"] == OTHER:
            return Outcome(after_seconds=RUN_SECONDS)
        return by_annotations(pod, attempt)

    with (
        contextlib.suppress(KeyboardInterrupt),
        FakeKubelet(Api.from_kubeconfig(kubeconfig), nodes=nodes, resources=NODE, behaviour=behaviour),
    ):
        over.wait()
    results.send({})
