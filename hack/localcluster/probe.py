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


def is_healthy(url: str, *, certificate: Path | None = None, token: str = "") -> bool:
    """Reports whether a server on this machine responds with 200. Without `certificate`, TLS is not verified.

    A server whose certificate does not exist yet, or is incomplete, is not ready.
    """
    parts = urlsplit(url)
    try:
        connection = _connection(parts.scheme, parts.netloc, certificate)
        with contextlib.closing(connection):
            connection.request("GET", parts.path, headers={"Authorization": f"Bearer {token}"} if token else {})
            return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False


def _connection(scheme: str, address: str, certificate: Path | None) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(address, timeout=_TIMEOUT_SECONDS)
    context = ssl.create_default_context(cafile=str(certificate) if certificate else None)
    if certificate is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(address, timeout=_TIMEOUT_SECONDS, context=context)


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
