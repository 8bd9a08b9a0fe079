"""Storages of each scheme on this machine, behind the same interface: a folder, S3, Google Cloud Storage, the hub."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helpers.gcsserver import BUCKET, GcsServer
from helpers.hubserver import HubServer
from helpers.s3server import S3Server
from helpers.storagecommand import MARKER, content_of

SCHEMES = ("file", "s3", "gs", "hf")
_FOLDER = "run-1"


@dataclass(frozen=True, slots=True)
class Storage:
    """A folder of a storage: its URI, the variables with which a program reaches it, and its present content."""

    uri: str
    environ: Mapping[str, str]
    content: Callable[[], dict[str, bytes]]


@contextmanager
def storage(scheme: str, files: Mapping[str, bytes], folder: Path) -> Iterator[Storage]:
    """Yields a storage with these files; `folder` is for a storage of scheme `file`."""
    inside = {f"{_FOLDER}/{name}": content for name, content in files.items()}
    match scheme:
        case "file":
            for name, content in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)

            def copies() -> dict[str, bytes]:
                found = content_of(folder).items()
                return {name: content for name, content in found if Path(name).name != MARKER}

            yield Storage(f"file://{folder}", {}, copies)
        case "s3":
            with S3Server() as s3:
                client = s3.client()
                # Buckets of the server outlive it in this process.
                bucket = f"models-{uuid.uuid4().hex}"
                client.create_bucket(Bucket=bucket)
                for name, content in inside.items():
                    client.put_object(Bucket=bucket, Key=name, Body=content)

                def objects() -> dict[str, bytes]:
                    keys = [entry["Key"] for entry in client.list_objects_v2(Bucket=bucket).get("Contents", ())]
                    return {key: client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}

                yield Storage(f"s3://{bucket}/{_FOLDER}", s3.environ, lambda: _inside(objects()))
        case "gs":
            with GcsServer(inside) as gcs:
                yield Storage(f"gs://{BUCKET}/{_FOLDER}", gcs.environ, lambda: _inside(gcs.objects))
        case "hf":
            with HubServer({"README.md": b"", **inside}) as hub:
                yield Storage(f"hf://{hub.repository}/{_FOLDER}", hub.environ, lambda: _inside(hub.files))


def _inside(files: Mapping[str, bytes]) -> dict[str, bytes]:
    prefix = f"{_FOLDER}/"
    return {name.removeprefix(prefix): content for name, content in files.items() if name.startswith(prefix)}
