"""Certificates of the stack's own programs, which openssl makes."""

from __future__ import annotations

from pathlib import Path

from localcluster.shell import run


def self_signed(certificate: Path, key: Path, subject: str, *names: str) -> None:
    """Writes a certificate that is its own authority, for servers of these names, such as IP:127.0.0.1.

    The key is in the form PKCS #1, which certificate rotators of controllers expect.
    """
    run("openssl", "genrsa", "-traditional", "-out", key, "2048")
    key.chmod(0o600)
    extension = ("-addext", f"subjectAltName={','.join(names)}") if names else ()
    run("openssl", "req", "-x509", "-key", key, "-days", "3650", "-subj", subject, *extension, "-out", certificate)
