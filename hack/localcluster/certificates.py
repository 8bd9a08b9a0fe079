"""Certificates of the stack's own programs, which openssl makes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from localcluster.shell import run

_DAYS = "3650"


def self_signed(certificate: Path, key: Path, subject: str) -> None:
    """Writes a certificate that is its own authority."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    _request(certificate, key, curve, subject)


def authority(certificate: Path, key: Path, name: str) -> None:
    """Writes a certificate authority that names itself as a DNS name, and its key in the form PKCS #1.

    Certificate rotators of controllers expect both.
    """
    usage = "keyUsage=critical,digitalSignature,keyCertSign,cRLSign"
    _request(certificate, key, ("-newkey", "rsa:2048"), f"/CN={name}", f"subjectAltName=DNS:{name}", usage)
    run("openssl", "rsa", "-traditional", "-in", key, "-out", key)


def signed(certificate: Path, key: Path, ca: tuple[Path, Path], names: Sequence[str]) -> None:
    """Writes a server's certificate for loopback and these DNS names that the authority has signed."""
    subjects = ",".join(["IP:127.0.0.1", *(f"DNS:{name}" for name in names)])
    options = ("-newkey", "rsa:2048", "-CA", ca[0], "-CAkey", ca[1])
    extensions = ("basicConstraints=critical,CA:FALSE", f"subjectAltName={subjects}", "extendedKeyUsage=serverAuth")
    _request(certificate, key, options, f"/CN={names[0]}", *extensions)


def _request(certificate: Path, key: Path, options: Sequence[str | Path], subject: str, *extensions: str) -> None:
    added = [word for extension in extensions for word in ("-addext", extension)]
    files = ("-keyout", key, "-out", certificate)
    run("openssl", "req", "-x509", "-nodes", "-days", _DAYS, *options, "-subj", subject, *added, *files)
    key.chmod(0o600)
