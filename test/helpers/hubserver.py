"""A server on loopback with the API of the Hugging Face hub that huggingface_hub 1.x uses, with one repository.

Small files are kept by Git, large ones by LFS; uploads consist of preupload, the LFS batch and a commit.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote

from helpers.httpserver import Answer, HttpServer, Request, content_answer, json_answer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_veryS3cretToken"
REVISIONS = ("main", "v1.0")


class HubServer(HttpServer):
    """Use as a context manager. `files` is the repository at `COMMIT`; LFS stores files of `lfs_from` bytes or more.

    `wrong` is content that is sent instead of the listed content, and `fault_of` returns the response that replaces the
    correct one.
    """

    def __init__(
        self,
        files: dict[str, bytes],
        *,
        address: str = "127.0.0.1",
        repository: str = "meta-llama/Llama-3-8b",
        kind: str = "models",
        needs_token: bool = False,
        is_gated: bool = False,
        lfs_from: int = 1000,
        fault_of: Callable[[Request], Answer | None] = lambda request: None,
        wrong: Mapping[str, bytes] | None = None,
    ) -> None:
        super().__init__(self._answer_for, address=address)
        self.files = files
        self.repository = repository
        self.kind = kind
        self.needs_token = needs_token
        self.is_gated = is_gated
        self.lfs_from = lfs_from
        self.fault_of = fault_of
        self.wrong = wrong or {}
        # The objects uploaded by LFS, by SHA-256.
        self.uploaded: dict[str, bytes] = {}
        self.created: list[dict[str, Any]] = []

    @property
    def environ(self) -> Mapping[str, str]:
        return {"HF_ENDPOINT": self.url, "HF_HUB_DISABLE_XET": "1"}

    def _answer_for(self, request: Request) -> Answer:
        fault = self.fault_of(request)
        if fault is not None:
            return fault
        path = unquote(request.path)
        # URLs of LFS are signed; requests to them must not send the token.
        is_signed = path.startswith("/lfs/")
        if self.needs_token and not is_signed and request.headers.get("authorization") != f"Bearer {TOKEN}":
            return _error(401, "RepoNotFound")
        if path == "/api/repos/create":
            self.created.append(json.loads(request.body))
            return json_answer({"url": f"{self.url}/{self.repository}"})
        for pattern, answer in self._routes():
            if found := re.fullmatch(pattern, path):
                return answer(request, **found.groupdict())
        return _error(404, "RepoNotFound")

    def _routes(self) -> list[tuple[str, Callable[..., Answer]]]:
        name = re.escape(self.repository)
        api, prefix = f"/api/{self.kind}/{name}", "" if self.kind == "models" else f"/{self.kind}"
        return [
            (f"{api}(/revision/(?P<revision>.+))?", self._info),
            (f"{api}/tree/(?P<revision>[^/]+)(/(?P<path>.*))?", self._tree),
            (f"{api}/paths-info/(?P<revision>.+)", self._paths_info),
            (f"{api}/preupload/(?P<revision>.+)", self._preupload),
            (f"{api}/commit/(?P<revision>.+)", self._commit),
            (f"{prefix}/{name}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", self._resolve),
            (f"{prefix}/{name}.git/info/lfs/objects/batch", self._batch),
            ("/lfs/(?P<oid>[0-9a-f]+)", self._take),
        ]

    def _info(self, request: Request, revision: str | None = None) -> Answer:
        if revision not in (None, COMMIT, *REVISIONS):
            return _error(404, "RevisionNotFound")
        siblings = [{"rfilename": name} for name in self.files]
        return json_answer({"id": self.repository, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False})

    def _tree(self, request: Request, revision: str, path: str | None = None) -> Answer:
        prefix = f"{path}/" if path else ""
        below = [name for name in self.files if name.startswith(prefix)]
        if not below:
            return _error(404, "EntryNotFound")
        if request.query.get("recursive", "").lower() == "true":
            folders = {name.rpartition("/")[0] for name in below if "/" in name}
            return json_answer([*map(_folder, sorted(folders)), *map(self._entry, below)])
        direct = [name for name in below if "/" not in name[len(prefix) :]]
        folders = {prefix + name[len(prefix) :].split("/")[0] for name in below if "/" in name[len(prefix) :]}
        return json_answer([*map(_folder, sorted(folders)), *map(self._entry, direct)])

    def _paths_info(self, request: Request, revision: str) -> Answer:
        asked = json.loads(request.body)["paths"] if request.body.startswith(b"{") else _form(request.body)
        return json_answer([self._entry(name) for name in asked if name in self.files])

    def _entry(self, name: str) -> dict[str, Any]:
        content = self.files[name]
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        entry = {"type": "file", "path": name, "size": len(content), "oid": blob}
        if len(content) >= self.lfs_from:
            lfs = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
            entry["lfs"] = lfs
        return entry

    def _resolve(self, request: Request, revision: str, path: str) -> Answer:
        if self.is_gated:
            return _error(403, "GatedRepo")
        if revision != COMMIT or path not in self.files:
            return _error(404, "EntryNotFound")
        return content_answer(request, self.wrong.get(path, self.files[path]))

    def _preupload(self, request: Request, revision: str) -> Answer:
        asked = json.loads(request.body)["files"]
        modes = [
            {
                "path": each["path"],
                "uploadMode": "lfs" if each["size"] >= self.lfs_from else "regular",
                "shouldIgnore": False,
                "oid": None,
            }
            for each in asked
        ]
        return json_answer({"files": modes, "commitOid": COMMIT})

    def _batch(self, request: Request) -> Answer:
        objects = json.loads(request.body)["objects"]
        answers = [
            {**each, "authenticated": True, "actions": {"upload": {"href": f"{self.url}/lfs/{each['oid']}"}}}
            for each in objects
        ]
        body = {"transfer": "basic", "objects": answers}
        return json_answer(body, Content_Type="application/vnd.git-lfs+json")

    def _take(self, request: Request, oid: str) -> Answer:
        self.uploaded[oid] = request.body
        return Answer(200, b"")

    def _commit(self, request: Request, revision: str) -> Answer:
        for line in request.body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                self.files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                self.files[value["path"]] = self.uploaded[value["oid"]]
            elif entry["key"] == "deletedFile":
                del self.files[value["path"]]
        url = f"{self.url}/{self.repository}/commit/{COMMIT}"
        return json_answer({"success": True, "commitOid": COMMIT, "commitUrl": url, "hookOutput": ""})


def _folder(path: str) -> dict[str, Any]:
    return {"type": "directory", "path": path, "oid": "0" * 40, "size": 0}


def _form(body: bytes) -> list[str]:
    return parse_qs(body.decode()).get("paths", [])


def _error(status: int, code: str) -> Answer:
    return json_answer({"error": "no"}, status, X_Error_Code=code)
