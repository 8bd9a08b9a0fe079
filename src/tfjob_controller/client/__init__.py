"""Training jobs from Python, for notebooks and scripts: build, submit, wait, read, change.

    from tfjob_controller.client import Client, tfjob

    with Client() as client:
        job = client.submit(tfjob("mnist", image="example/mnist:1", workers=2))
        job.wait("Succeeded", timeout_seconds=3600)

Every name is loaded when it is first used, and the Kubernetes client when a `Client` connects. May import `kinds`,
`jobs`, `api`, `kube` and `util`; the kubectl plugin and the dashboard are based on it. Start with `client.py` and
`job.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfjob_controller.client.builders import tfjob, trainjob
    from tfjob_controller.client.client import Client
    from tfjob_controller.client.diagnostics.description import Description
    from tfjob_controller.client.errors import (
        AmbiguousNameError,
        ClientError,
        JobDeletedError,
        JobEndedError,
        JobFailedError,
        WaitTimeoutError,
    )
    from tfjob_controller.client.history.reading import History
    from tfjob_controller.client.history.record import HistoryError
    from tfjob_controller.client.job import Job, Jobs
    from tfjob_controller.client.kinds import Snapshot
    from tfjob_controller.client.logstreams import LogLine

__all__ = [
    "AmbiguousNameError",
    "Client",
    "ClientError",
    "Description",
    "History",
    "HistoryError",
    "Job",
    "JobDeletedError",
    "JobEndedError",
    "JobFailedError",
    "Jobs",
    "LogLine",
    "Snapshot",
    "WaitTimeoutError",
    "tfjob",
    "trainjob",
]

_HOME = {
    "Client": "client",
    "Description": "diagnostics.description",
    "History": "history.reading",
    "HistoryError": "history.record",
    "Job": "job",
    "LogLine": "logstreams",
    "Snapshot": "kinds",
    "Jobs": "job",
    "tfjob": "builders",
    "trainjob": "builders",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'errors')}"), name)
