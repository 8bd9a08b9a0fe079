"""TLS for servers and clients on loopback; localcluster.certificates makes their certificates."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Returns the settings of a server that shows the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def trusting_context() -> ssl.SSLContext:
    """Returns the settings of a client that accepts any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def client_hello() -> bytes:
    """Returns the beginning of a handshake."""
    sent = ssl.MemoryBIO()
    client = trusting_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()
