"""Self-signed certificates of servers and clients on this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

from localcluster.programs import LOOPBACK

_REQUEST = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Creates a certificate for 127.0.0.1 and returns the paths of certificate and key."""
    file = name.replace(":", "-")
    pair = folder / f"{file}.pem", folder / f"{file}.key"
    subject = ("-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{LOOPBACK}")
    subprocess.run([*_REQUEST, *subject, "-out", pair[0], "-keyout", pair[1]], check=True, capture_output=True)
    return pair
