"""A real S3 server on loopback (moto), and a client that shares no code with the code under test."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Self

import boto3
from moto.server import ThreadedMotoServer

ACCESS_KEY, SECRET_KEY = "AKIAEXAMPLEKEY", "very/secret+key-of-s3"


class S3Server:
    """Use as a context manager; buckets exist as long as the server."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self._address = address
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address=address, port=0, verbose=False)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @property
    def url(self) -> str:
        _, port = self._server.get_host_and_port()
        return f"http://{self._address}:{port}"

    @property
    def environ(self) -> Mapping[str, str]:
        """Returns the environment of an initializer for this server."""
        keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        return {**keys, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": self.url}

    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )
