"""The Hugging Face hub by huggingface_hub: a source, and a sink.

HF_TOKEN (or ACCESS_TOKEN, as Kubeflow's Trainer calls it) authenticates requests, and HF_ENDPOINT names the hub. The
revision is resolved to a commit first, so that all files come from the same commit. Every file can be verified: the hub
reports the SHA-256 of large files, and the Git hash of the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import GIT, SHA256, Digest, RemoteFile
from tfjob_controller.storage.objectstore import Info, read_blocks, relative_files
from tfjob_controller.storage.uris import DATASET, StorageUri

_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "ACCESS_TOKEN")

_log = structlog.get_logger(__name__)


def _token(environ: Mapping[str, str]) -> str | bool:
    """Returns the token; False keeps the library from using one that it finds in the home folder."""
    return next((environ[name].strip() for name in _TOKENS if environ.get(name, "").strip()), False)


def _refuse_plain_http(environ: Mapping[str, str]) -> None:
    """Makes the library refuse redirects to http://, unless the hub's own URL has this scheme. The library's settings
    apply to the whole process, which runs one command.
    """
    import httpx
    from huggingface_hub import set_client_factory

    def check(request: httpx.Request) -> None:
        if request.url.scheme != "https":
            raise StorageError(f"the hub redirects to {request.url.scheme}://, which is not encrypted")

    if not (_endpoint(environ) or "https://").startswith("http://"):
        hooks = {"request": [check]}
        set_client_factory(lambda: httpx.Client(event_hooks=hooks, follow_redirects=True, timeout=None))  # noqa: S113


def _endpoint(environ: Mapping[str, str]) -> str | None:
    return environ.get("HF_ENDPOINT", "").rstrip("/") or None


def connect(environ: Mapping[str, str]) -> Any:
    """A huggingface_hub.HfApi. Raises ImportError."""
    from huggingface_hub import HfApi
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    _refuse_plain_http(environ)
    return HfApi(endpoint=_endpoint(environ), token=_token(environ))


def open_filesystem(environ: Mapping[str, str]) -> Any:
    """A huggingface_hub.HfFileSystem. Raises ImportError."""
    from huggingface_hub import HfFileSystem

    return HfFileSystem(endpoint=_endpoint(environ), token=_token(environ), skip_instance_cache=True, expand_info=False)


class HubSource:
    """All files of a repository at one commit, those of a folder in it, or one file."""

    def __init__(self, uri: StorageUri, environ: Mapping[str, str]) -> None:
        self._uri = uri
        self._api = connect(environ)
        self._filesystem = open_filesystem(environ)

    def files(self) -> Sequence[RemoteFile]:
        uri = self._uri
        found = self._api.repo_info(uri.place, repo_type=uri.repository_type, revision=uri.revision or None)
        _log.info("revision", repository=uri.place, commit=found.sha)
        kind = "datasets/" if uri.repository_type == DATASET else ""
        root = f"{kind}{uri.place}@{found.sha}/{uri.path}".rstrip("/")
        return relative_files(self._listing(root), root, _describe)

    def _listing(self, root: str) -> Mapping[str, Info]:
        found: Any = self._filesystem.find(root, detail=True)
        # For a single file `find` returns only the name.
        return {root: self._filesystem.info(root, expand_info=True)} if list(found) == [root] else found

    def read(self, file: RemoteFile, offset: int) -> Iterator[bytes]:
        return read_blocks(self._filesystem, file, offset)

    def is_digest_of_content(self, file: RemoteFile) -> bool:
        return True


def _describe(name: str, location: str, info: Info) -> RemoteFile:
    lfs = info.get("lfs")
    if lfs:
        digest = Digest(SHA256, lfs["sha256"] if "sha256" in lfs else lfs["oid"])
    else:
        digest = Digest(GIT, str(info.get("blob_id") or ""))
    return RemoteFile(name, location, int(info["size"]), digest.value, digest if digest.value else None)


class HubSink:
    """Puts a folder into a repository as one commit: readers see all of it or nothing."""

    def __init__(self, uri: StorageUri, environ: Mapping[str, str]) -> None:
        self._uri = uri
        self._api = connect(environ)

    def put_all(self, paths: Mapping[str, Path]) -> None:
        """Puts files by name. The repository is created, as a private one, if there is none."""
        from huggingface_hub import CommitOperationAdd

        uri = self._uri
        with contextlib.suppress(FileExistsError):
            self._api.create_repo(uri.place, repo_type=uri.repository_type, private=True, exist_ok=True)
        below = f"{uri.path}/" if uri.path else ""
        self._api.create_commit(
            repo_id=uri.place,
            repo_type=uri.repository_type,
            operations=[CommitOperationAdd(f"{below}{name}", path) for name, path in paths.items()],
            revision=uri.revision or None,
            commit_message="Exported by tfjob-controller",
        )
