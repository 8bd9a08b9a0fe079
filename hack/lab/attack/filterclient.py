"""A client of the extender that sends requests as kube-scheduler does, and measures each `filter` call.

After each call it calls a server that sends a response of the same size without any work, over plain HTTP: the load of
the machine delays both.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
import statistics
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import msgspec

from bench.filter import Connection as BareConnection
from bench.filter import p99, post, program
from lab.attack.stage import OTHER

_PAUSE_SECONDS = 0.02
_TIMEOUT_SECONDS = 30.0
_LEAST = 20


def measure(
    port: int, ca: Path, client: tuple[Path, Path], nodes: Sequence[str], over: Event, results: Connection
) -> None:
    """Sends requests on one connection until `over`, and then the figures. Runs in a separate process."""
    context = ssl.create_default_context(cafile=str(ca))
    context.load_cert_chain(*map(str, client))
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS, context=context)
    body = msgspec.json.encode(_request(nodes))
    taken: list[float] = []
    bare: list[float] = []
    failures: list[str] = []
    request = post("/filter", _request(nodes))
    with program("bare") as server, contextlib.suppress(KeyboardInterrupt):
        plain = BareConnection(int(server.stdout.readline() if server.stdout else 0))
        # A short attack on a busy machine may be over before this process has started; one call is made all the same.
        while not taken or not over.wait(_PAUSE_SECONDS):
            begin = time.perf_counter()
            try:
                connection.request("POST", "/filter", body)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    failures.append(f"status {answer.status}")
            except (OSError, http.client.HTTPException) as error:
                failures.append(repr(error))
                connection.close()
            middle = time.perf_counter()
            plain.call(request)
            taken.append(1000.0 * (middle - begin))
            bare.append(1000.0 * (time.perf_counter() - middle))
    results.send(
        {**_figures(taken), "failed": len(failures), "failures": sorted(set(failures))[:5], "bare": _figures(bare)}
    )


def _figures(taken: Sequence[float]) -> dict[str, Any]:
    if len(taken) < _LEAST:
        return {"calls": len(taken)}
    return {
        "calls": len(taken),
        "p50_ms": round(statistics.median(taken), 2),
        "p99_ms": round(p99(taken), 2),
        "max_ms": round(max(taken), 1),
    }


def _request(nodes: Sequence[str]) -> dict[str, Any]:
    containers = [{"name": "main", "image": "main", "resources": {"requests": {"cpu": "1m"}}}]
    pod = {"metadata": {"name": "measured", "namespace": OTHER, "uid": "measured"}, "spec": {"containers": containers}}
    return {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)}
