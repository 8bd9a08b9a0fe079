"""The dashboard's real program over a server that plays the API server, and people who use it through sockets."""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from helpers.certificates import trusting_context
from helpers.httpserver import Answer, HttpServer, Request, status_answer
from helpers.poll import eventually
from localcluster import ports

TFJOBS_PATH = "/apis/kubeflow.org/v1alpha1/namespaces/{}/tfjobs"
_CSRF = re.compile(r'csrf[-_]token&#34;: &#34;([-\w]+)|csrf[-_]token": "([-\w]+)|csrf_token" value="([-\w]+)')


class PlayedApiServer:
    """Accepts the token `NAME.anything` as the user NAME, and no token that begins with `bad`. Watches stay silent."""

    def __init__(self) -> None:
        self.jobs: dict[str, bytes] = {}
        """By the path's end, such as `ns/tfjobs/name`."""
        self.reviews: list[str] = []
        """The tokens of all reviews."""
        self.is_over = threading.Event()
        self.slow = threading.Event()
        """Until it is set, access reviews of the user `slow` wait."""
        self.lock = threading.Lock()
        self.watches: dict[str, int] = {}
        """Open watches by user."""
        self.watches_started: Counter[str] = Counter()
        self.events: dict[str, queue.SimpleQueue[bytes]] = {}
        """What the watches of a path yield."""

    def respond(self, request: Request) -> Answer:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        user = token.partition(".")[0]
        if request.path.endswith("/selfsubjectreviews"):
            self.reviews.append(token)
            if user.startswith("bad"):
                return status_answer(401, "Unauthorized")
            return Answer(body=json.dumps({"status": {"userInfo": {"username": user}}}).encode())
        if request.path.endswith("/selfsubjectaccessreviews"):
            if user == "slow":
                self.slow.wait(60)
            return Answer(body=b'{"status": {"allowed": true}}')
        if request.query.get("watch"):
            return Answer(chunks=self._watch(user, request.path))
        *_, namespace, plural, name = ("", "", *request.path.split("/"))
        if (found := self.jobs.get(f"{namespace}/{plural}/{name}")) is not None:
            return Answer(body=found)
        if request.method == "GET" and "/namespaces/" in request.path and plural == "namespaces":
            return Answer(body=json.dumps({"metadata": {"name": name, "uid": "u"}}).encode())
        return Answer(body=b'{"kind": "List", "metadata": {"resourceVersion": "1"}, "items": []}')

    def _watch(self, user: str, path: str) -> Iterator[bytes]:
        with self.lock:
            self.watches[user] = self.watches.get(user, 0) + 1
            self.watches_started[user] += 1
        bookmark = {"metadata": {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}}
        lines = self.events.setdefault(path, queue.SimpleQueue())
        line = json.dumps({"type": "BOOKMARK", "object": bookmark}).encode() + b"\n"
        try:
            yield line
            while not self.is_over.is_set():
                try:
                    yield lines.get(timeout=0.5)
                except queue.Empty:
                    # Another bookmark notices a client that has gone.
                    yield line
        finally:
            with self.lock:
                self.watches[user] -= 1


def job_body(namespace: str, name: str, spec: Mapping[str, object] | None = None) -> bytes:
    """A TFJob as the API server returns it."""
    return json.dumps(
        {
            "apiVersion": "kubeflow.org/v1alpha1",
            "kind": "TFJob",
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "5"},
            "spec": spec or {"replicaSpecs": [{"tfReplicaType": "MASTER", "replicas": 1}]},
        },
        separators=(",", ":"),
    ).encode()


@dataclass
class Stream:
    """An event stream. Closing it closes its connection."""

    connection: http.client.HTTPConnection
    status: int
    response: http.client.HTTPResponse

    def has_ended(self) -> bool:
        """Whether the server ends it soon. Reads what has arrived."""
        assert self.connection.sock is not None or self.response.fp is not None
        try:
            while self.response.read1(65_536):
                pass
        except TimeoutError:
            return False
        except (OSError, http.client.HTTPException):
            return True
        return True


@dataclass
class Person:
    """A browser with a session. `address` is its own on loopback."""

    port: int
    address: str = "127.0.0.1"
    cookie: str = ""
    has_tls: bool = False
    streams: ExitStack = field(default_factory=ExitStack)

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str, Mapping[str, str]]:
        connection = self._connection(60)
        try:
            connection.request(method, path, body, {"Cookie": self.cookie, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), {name.lower(): each for name, each in answer.getheaders()}
        finally:
            connection.close()

    def get(self, path: str) -> tuple[int, str]:
        return self.send("GET", path)[:2]

    def log_in(self, token: str) -> int:
        """The status; 303 once the browser has a session."""
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        status, _, headers = self.send("POST", "/login", urlencode({"token": token}).encode(), form)
        self.cookie = headers.get("set-cookie", "").partition(";")[0] or self.cookie
        return status

    def is_logged_in(self) -> bool:
        return self.get("/queue")[0] == 200

    def stream(self, path: str, patience_seconds: float = 1.0) -> Stream:
        connection = self._connection(1.0)
        connection.timeout = 30
        connection.request("GET", path, headers={"Cookie": self.cookie, "Accept": "text/event-stream"})
        sock = connection.sock
        answer = connection.getresponse()
        sock.settimeout(patience_seconds)
        self.streams.callback(sock.close)
        self.streams.callback(answer.close)
        return Stream(connection, answer.status, answer)

    def csrf(self) -> str:
        """The token of its pages."""
        found = _CSRF.search(self.get("/new")[1])
        assert found is not None
        return next(each for each in found.groups() if each)

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        source = (self.address, 0)
        if not self.has_tls:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout, source_address=source)
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=timeout, source_address=source, context=trusting_context()
        )


@dataclass(frozen=True)
class Site:
    """The running dashboard."""

    port: int
    process: subprocess.Popen[bytes]
    cluster: PlayedApiServer
    people: list[Person]
    has_tls: bool = False

    def person(self, token: str = "", address: str = "127.0.0.1") -> Person:
        """A browser, which has logged in if there is a token."""
        found = Person(self.port, address, has_tls=self.has_tls)
        self.people.append(found)
        if token:
            assert found.log_in(token) == 303
        return found

    def resident_bytes(self) -> int:
        """The most memory that the process has had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) * 1024


@contextmanager
def dashboard_site(folder: Path, *flags: str, has_tls: bool = False) -> Iterator[Site]:
    """The dashboard with a played API server; it must end in an orderly way."""
    cluster = PlayedApiServer()
    authority = folder / "ca.crt"
    authority.write_text("")
    with HttpServer(cluster.respond) as server, ports.reserve(1, "127.0.0.1") as (port,):
        command = [sys.executable, "-m", "tfjob_controller", "dashboard"]
        command += [f"--dashboard-bind-address=127.0.0.1:{port}", f"--api-server={server.url}"]
        command += [f"--api-server-ca-file={authority}", *flags]
        with (
            (folder / "output").open("wb") as sink,
            subprocess.Popen(
                command, env={**os.environ, "KUBECONFIG": "/nowhere"}, stdout=sink, stderr=sink
            ) as process,
        ):
            site = Site(port, process, cluster, [], has_tls)
            try:
                eventually(lambda: _answers(port), timeout=60)
                yield site
            finally:
                cluster.is_over.set()
                cluster.slow.set()
                for person in site.people:
                    person.streams.close()
                process.terminate()
            assert process.wait(30) == 0, (folder / "output").read_text()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
