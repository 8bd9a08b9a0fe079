"""The storages of a run: a real S3 server (moto) in this process, and how the auditor reads a bucket or a folder.

The server can be away, and can hold a request so that its sender is killed. The same port takes the reports of training
programs, which are JSON in a POST of `REPORTS`. Readers share nothing with the code under test. Names are relative to
the URI of a job, as in docs/checkpoints.md: `manifests/…` and `data/…`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

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


# The files of each job with their sizes.
Listing = Mapping[str, Mapping[str, int]]


class Reader(Protocol):
    """One storage with folders of jobs. Thread-safe."""

    def listing(self, job: str = "") -> Listing:
        """All files of one job, or of all; a job without files may be missing."""

    def read(self, job: str, name: str) -> bytes | None:
        """The content of a file; None if there is none."""


class BucketReader:
    """Implements `Reader` for the jobs in a bucket."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def listing(self, job: str = "") -> Listing:
        sizes: dict[str, dict[str, int]] = defaultdict(dict)
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{job}/" if job else "")
        for page in pages:
            for entry in page.get("Contents", ()):
                owner, _, name = entry["Key"].partition("/")
                sizes[owner][name] = entry["Size"]
        return sizes

    def read(self, job: str, name: str) -> bytes | None:
        try:
            content: bytes = self._client.get_object(Bucket=BUCKET, Key=f"{job}/{name}")["Body"].read()
        except self._client.exceptions.NoSuchKey:
            return None
        return content


class FolderReader:
    """Implements `Reader` for the folders of jobs in a folder of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def listing(self, job: str = "") -> Listing:
        jobs = [job] if job else sorted(os.listdir(self._root))
        # The manifests of a job come first: a checkpoint that is removed loses its manifest before its files.
        return {name: {**self._below(name, "manifests"), **self._below(name, "data")} for name in jobs}

    def read(self, job: str, name: str) -> bytes | None:
        try:
            return (self._root / job / name).read_bytes()
        except FileNotFoundError:
            return None

    def _below(self, job: str, part: str) -> dict[str, int]:
        sizes = {}
        # Files and folders may be removed meanwhile.
        for folder, _, names in os.walk(self._root / job / part):
            for path in (Path(folder, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    sizes[path.relative_to(self._root / job).as_posix()] = path.stat().st_size
        return sizes
