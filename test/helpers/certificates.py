"""Certificates for servers and clients on loopback."""

from __future__ import annotations

import contextlib
import ssl
import subprocess
from pathlib import Path


def self_signed(folder: Path, name: str = "me") -> tuple[Path, Path]:
    """Writes a self-signed certificate for 127.0.0.1, valid for servers and clients, and its key.

    They are `<name>.pem` and `<name>.key` in the folder.
    """
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-days", "2"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, *names, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


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
