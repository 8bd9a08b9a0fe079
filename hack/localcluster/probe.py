"""Small HTTP requests to the programs of the control plane, such as readiness probes. Standard library only."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_TIMEOUT_SECONDS = 5.0


def is_healthy(address: str, port: int, path: str, *, certificate: Path | None = None, token: str = "") -> bool:
    """Reports whether an HTTPS server responds with 200. Without `certificate` it is not verified; loopback only.

    A server whose certificate does not exist yet, or is incomplete, is not ready.
    """
    try:
        context = ssl.create_default_context(cafile=str(certificate)) if certificate else _unverified()
        with contextlib.closing(
            http.client.HTTPSConnection(address, port, timeout=_TIMEOUT_SECONDS, context=context)
        ) as connection:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
            return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False


def is_answered(url: str) -> bool:
    """Reports whether a server without TLS responds with 200."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS)
    try:
        with contextlib.closing(connection):
            connection.request("GET", parts.path)
            return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False


def etcd_is_healthy(folder: Path, socket_name: str) -> bool:
    try:
        return bool(etcd_call(folder, socket_name, "GET", "/health").get("health") == "true")
    except (OSError, http.client.HTTPException, ValueError):
        return False


def etcd_call(folder: Path, socket_name: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """Sends a request to etcd's JSON gateway. Raises OSError, HTTPException, ValueError."""
    connection = _UnixConnection(folder, socket_name)
    try:
        connection.request(method, path, body=None if body is None else json.dumps(body))
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != http.client.OK:
            raise OSError(f"etcd: {answer.status} {content.decode(errors='replace')}")
        decoded: dict[str, Any] = json.loads(content)
        return decoded
    finally:
        connection.close()


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket, opened through the folder's descriptor since its path may be too long for a socket."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_SECONDS)
        self._folder = folder
        self._name = name

    def connect(self) -> None:
        descriptor = os.open(self._folder, os.O_PATH | os.O_DIRECTORY)
        try:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(_TIMEOUT_SECONDS)
            self.sock.connect(f"/proc/self/fd/{descriptor}/{self._name}")
        finally:
            os.close(descriptor)


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
