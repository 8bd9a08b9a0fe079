"""A real S3 server (moto) in this process, which can be away, and can hold a request so that its sender is killed.

The same port takes the reports of training programs, which are JSON in a POST of `REPORTS`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from botocore.config import Config
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUCKET, REPORTS = "checkpoints", "/reports"
_KEYS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLEKEY", "AWS_SECRET_ACCESS_KEY": "key-of-the-chaos-test"}
# Longer than a kill takes; the request then goes on.
_HOLD_SECONDS = 20.0
# Requests of the auditor are served also while the storage is away.
_AUDITOR = "chaos-auditor"

Environ = dict[str, Any]
StartResponse = Callable[..., Any]


class Bucket:
    """Use as a context manager. Thread-safe."""

    def __init__(self, address: str, receive: Callable[[dict[str, Any]], bool]) -> None:
        """`receive` gets each report, and returns whether the program may end."""
        self._receive = receive
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._address = address
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server(address, 0, self._serve, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, name="s3", daemon=True)
        self._away = ""
        self._held: dict[str, tuple[threading.Event, threading.Event]] = {}
        self._lock = threading.Lock()
        self.refused = 0

    def __enter__(self) -> Bucket:
        self._thread.start()
        self.client().create_bucket(Bucket=BUCKET)
        return self

    def __exit__(self, *_: object) -> None:
        self._away = ""
        self._server.shutdown()

    @property
    def url(self) -> str:
        return f"http://{self._address}:{self._server.port}"

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables of a program that uses this server."""
        return {**_KEYS, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": self.url}

    def client(self) -> Any:
        """A client of its own for the auditor, which shares no code with the code under test."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=_KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=_KEYS["AWS_SECRET_ACCESS_KEY"],
            config=Config(user_agent_extra=_AUDITOR, max_pool_connections=20),
        )

    def be_away(self, how: str, seconds: float) -> None:
        """Does not serve for that time: `refuses` answers 503, and `hangs` answers late."""
        self._away = how
        time.sleep(seconds)
        self._away = ""

    def hold_upload(self, job: str) -> threading.Event:
        """Holds the next write of data of this job; returns what is set when it has come."""
        come, go = threading.Event(), threading.Event()
        with self._lock:
            self._held[job] = (come, go)
        return come

    def release(self, job: str) -> None:
        with self._lock:
            held = self._held.pop(job, None)
        if held is not None:
            held[1].set()

    def _serve(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == REPORTS:
            report = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps({"may_end": self._receive(report)}).encode()]
        if _AUDITOR not in environ.get("HTTP_USER_AGENT", ""):
            while self._away == "hangs":
                time.sleep(0.1)
            if self._away:
                self.refused += 1
                start_response("503 Slow Down", [("Content-Length", "0"), ("Connection", "close")])
                return [b""]
            self._maybe_hold(environ)
        answer: Iterable[bytes] = self._moto(environ, start_response)
        return answer

    def _maybe_hold(self, environ: Environ) -> None:
        parts = environ.get("PATH_INFO", "").split("/")
        if environ["REQUEST_METHOD"] not in ("PUT", "POST") or len(parts) < 4 or parts[3] != "data":
            return
        with self._lock:
            held = self._held.get(parts[2])
        if held is not None and not held[0].is_set():
            held[0].set()
            held[1].wait(_HOLD_SECONDS)
