"""Certificates of programs on this machine, which openssl makes."""

from __future__ import annotations

from pathlib import Path

from localcluster.programs import LOOPBACK
from localcluster.shell import run


def self_signed(certificate: Path, key: Path, subject: str, *names: str) -> None:
    """Writes a certificate that is its own authority, for servers of these names, such as IP:127.0.0.1.

    The key is in the form PKCS #1, which certificate rotators of controllers expect.
    """
    run("openssl", "genrsa", "-traditional", "-out", key, "2048")
    key.chmod(0o600)
    extension = ("-addext", f"subjectAltName={','.join(names)}") if names else ()
    run("openssl", "req", "-x509", "-key", key, "-days", "3650", "-subj", subject, *extension, "-out", certificate)


def of_loopback(folder: Path, name: str) -> tuple[Path, Path]:
    """Writes such a certificate for 127.0.0.1, valid for servers and clients; returns its path and that of its key.

    They are `<name>.pem` and `<name>.key` in the folder, with `-` for `:`.
    """
    file = name.replace(":", "-")
    certificate, key = folder / f"{file}.pem", folder / f"{file}.key"
    self_signed(certificate, key, f"/CN={name}", f"IP:{LOOPBACK}")
    return certificate, key
