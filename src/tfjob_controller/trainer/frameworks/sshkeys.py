"""Generates SSH key pairs for MPI jobs: ECDSA on P-521, in OpenSSH's formats."""

from __future__ import annotations


def new_key_pair() -> tuple[bytes, bytes]:
    """(private key as PEM, public key as a line of authorized_keys)."""
    # Imported here, since it takes some MB of memory and time that controllers without MPI jobs should not spend.
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private, public + b"\n"
