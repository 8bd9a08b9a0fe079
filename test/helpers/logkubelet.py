"""A node whose kubelet serves only logs and metrics of resources, requested by the API server and by metrics-server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from helpers.certificates import server_context
from helpers.cluster import make_node
from helpers.httpserver import Answer, HttpServer, Request
from localcluster.api import Api


class Kubelet(HttpServer):
    """`logs` are the logs by name of the pod; other pods have printed `every_log`, by default two lines.

    Other containers than the first one have theirs as `pod/container`, and those of the run before as
    `pod/container/previous`. With `time` each line begins with it, if it is requested.

    `chunks` replaces them, sent piece by piece: once, or for each request if it is a function. `resource_metrics`
    returns the text of `/metrics/resource`.
    """

    def __init__(self, api: Api, name: str, pair: tuple[Path, Path]) -> None:
        super().__init__(self._log_of, server_context(*pair))
        self.name = name
        self.chunks: Iterator[bytes] | Callable[[], Iterator[bytes]] | None = None
        self.logs: dict[str, str] = {}
        self.every_log = ""
        self.resource_metrics: Callable[[], str] = lambda: ""
        self.time = ""
        self._api = api

    def __enter__(self) -> Self:
        super().__enter__()
        # The node is unschedulable, because pods of other tests would never start here.
        closed = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}, "spec": {"unschedulable": True}}
        self._api.create("/api/v1/nodes", closed)
        make_node(self._api, self.name)
        endpoints = {"kubeletEndpoint": {"Port": int(self.url.rpartition(":")[2])}}
        status = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": endpoints}
        self._api.patch(f"/api/v1/nodes/{self.name}/status", {"status": status})
        return self

    def __exit__(self, *exc: object) -> None:
        self._api.delete(f"/api/v1/nodes/{self.name}")
        super().__exit__(*exc)

    def _log_of(self, request: Request) -> Answer:
        if request.path == "/metrics/resource":
            return Answer(body=self.resource_metrics().encode(), headers={"Content-Type": "text/plain; version=0.0.4"})
        pod, container = request.path.split("/")[-2:]
        run = f"{pod}/{container}/previous" if request.query.get("previous") == "true" else f"{pod}/{container}"
        printed = self.logs.get(run, self.logs.get(pod, self.every_log or f"step 1 of {pod}\nstep 2\n"))
        if self.time and request.query.get("timestamps") == "true":
            printed = "".join(f"{self.time} {line}" for line in printed.splitlines(keepends=True))
        text = printed if request.query.get("tailLines") != "0" else ""
        chunks = self.chunks() if callable(self.chunks) else self.chunks
        return Answer(body=text.encode(), headers={"Content-Type": "text/plain"}, chunks=chunks)
