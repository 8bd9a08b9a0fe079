"""Certificates of the stack's own programs, which openssl makes."""

from __future__ import annotations

from pathlib import Path

from localcluster.shell import run


def self_signed(certificate: Path, key: Path, subject: str, *names: str) -> None:
    """Writes a certificate that is its own authority, for servers of these names, such as IP:127.0.0.1."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    extension = ("-addext", f"subjectAltName={','.join(names)}") if names else ()
    files = ("-keyout", key, "-out", certificate)
    run("openssl", "req", "-x509", "-nodes", "-days", "3650", *curve, "-subj", subject, *extension, *files)
    key.chmod(0o600)
