"""Reads and writes objects of one kind over any transport.

A `ResourceClient` turns names into paths and responses into values. Retries, limits and time-outs belong to the
transport, and every failure is its `ApiError`. Thread-safe, since it keeps no state.

A response with a success code that cannot be decoded (such as a proxy's login page) is an `ApiError` without response
and with reason `InvalidAnswer`; the outcome of a write is then unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic

import msgspec

from tfjob_controller.kube.codec import ListPage, decode_list, decoder_for, encode
from tfjob_controller.kube.errors import NO_RESPONSE, RESPONSE_TOO_LARGE, ApiError
from tfjob_controller.kube.flowcontrol import Priority
from tfjob_controller.kube.managedfields import ManagedObject
from tfjob_controller.kube.meta import ObjectT, PathError, Resource
from tfjob_controller.kube.requester import JSON, MERGE_PATCH, Requester
from tfjob_controller.util.lazylog import get_logger

log = get_logger(__name__)

Body = Mapping[str, Any] | msgspec.Struct | bytes

# client-go's tools/pager: a page that the server can build from etcd in one go.
PAGE_SIZE = 500
# 500 objects, 50, 5, or 1: etcd stores up to 1.5 MB of each.
_SMALLER = 10
_decode_managed = decoder_for(ManagedObject)
# Source: apimachinery pkg/apis/meta/v1/types.go (CreateOptions); the default for JSON is Warn.
STRICT = {"fieldValidation": "Strict"}
DRY_RUN = {"dryRun": "All"}

# The program's start waits for this request: after this time it is logged as failing and sent again.
_VERSION_SECONDS = 5.0


class _DeletedMeta(msgspec.Struct, rename="camel"):
    deletion_timestamp: str | None = None


class _Deleted(msgspec.Struct):
    """The response to a deletion: the object, or a Status."""

    metadata: _DeletedMeta = msgspec.field(default_factory=_DeletedMeta)


_decode_deleted = decoder_for(_Deleted)


class _VersionInfo(msgspec.Struct, rename="camel"):
    major: str
    minor: str
    # Since Kubernetes 1.33: the version whose API and features the server offers, with --emulated-version an older one.
    emulation_major: str = ""
    emulation_minor: str = ""


class ResourceClient(Generic[ObjectT]):
    """Reads and writes objects of one `resource`.

    An empty `namespace` means all namespaces, or a cluster-scoped object.
    """

    def __init__(
        self,
        requester: Requester,
        resource: Resource[ObjectT],
        *,
        priority: Priority = Priority.NORMAL,
        timeout_seconds: float = 30.0,
        retry: bool | None = None,
    ) -> None:
        self._requester = requester
        self._resource = resource
        self._decode = resource.decode
        self._priority = priority
        self._timeout_seconds = timeout_seconds
        self._retry = retry

    def _path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        try:
            return self._resource.path(namespace, name, subresource)
        except PathError as error:
            raise ApiError(400, "BadRequest", str(error)) from None

    def get(self, namespace: str, name: str) -> ObjectT:
        return self._object("GET", self._path(namespace, name))

    def get_managed(self, namespace: str, name: str) -> ManagedObject:
        """Returns the labels of an object and who set which of its fields, which `get` does not decode."""
        try:
            return _decode_managed(self._send("GET", self._path(namespace, name)))
        except msgspec.MsgspecError as error:
            raise _invalid_answer(error, writes=False) from error

    def create(self, namespace: str, body: Body, *, strict: bool = False) -> ObjectT:
        """Creates an object. Raises ApiError: `is_already_exists`, or with `outcome_unknown` if it may exist now.

        The server drops fields that it does not know; with `strict` it refuses the object instead.
        """
        path = self._path(namespace)
        return self._object("POST", path, body, query=STRICT if strict else None)

    def update(self, namespace: str, name: str, body: Body, subresource: str = "") -> ObjectT:
        """Replaces an object; with a `resourceVersion` in the body raises `is_conflict` if it has changed since."""
        return self._object("PUT", self._path(namespace, name, subresource), body)

    def patch(self, namespace: str, name: str, body: Body, *, subresource: str = "", dry_run: bool = False) -> ObjectT:
        """Changes some fields by a merge patch, which custom resources support as well.

        With `dry_run` the server only returns the object as it would be.
        """
        path = self._path(namespace, name, subresource)
        return self._object("PATCH", path, body, MERGE_PATCH, DRY_RUN if dry_run else None)

    def delete(
        self,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: str = "Background",
        dry_run: bool = False,
    ) -> ObjectT | None:
        """Deletes an object. Raises `is_conflict` if it has another `uid` or `resource_version` than given.

        With `dry_run` the server only checks whether it may be deleted.

        Returns the object if it is terminating, and None if it is gone. With a uid the request is repeated if there was
        no response: a second one at worst fails with 404 or conflict.
        """
        options: dict[str, Any] = {"propagationPolicy": propagation}
        wanted = (("uid", uid), ("resourceVersion", resource_version))
        if preconditions := {key: each for key, each in wanted if each}:
            options["preconditions"] = preconditions
        if dry_run:
            # Of a request with a body, the server ignores options in the query (apiserver handlers/delete.go).
            options["dryRun"] = ["All"]
        answer = self._send("DELETE", self._path(namespace, name), encode(options), repeatable=bool(uid))
        try:
            is_terminating = _decode_deleted(answer).metadata.deletion_timestamp is not None
        except msgspec.MsgspecError as error:
            raise _invalid_answer(error, writes=True) from error
        return self._decoded(answer, writes=True) if is_terminating else None

    def list(self, namespace: str = "", label_selector: str = "", *, field_selector: str = "") -> list[ObjectT]:
        """Returns all matching objects at one version; raises `is_gone` if it is compacted between two pages."""
        pages = self.pages(namespace, label_selector, field_selector=field_selector)
        return [self._decoded(item, writes=False) for page in pages for item in page.items]

    def pages(
        self,
        namespace: str = "",
        label_selector: str = "",
        *,
        field_selector: str = "",
        resource_version: str = "",
        page_size: int = PAGE_SIZE,
    ) -> Iterator[ListPage]:
        """Yields the pages of a list with undecoded objects, so that a malformed object does not hide the others.

        Pages become smaller where the transport refuses them as too large.
        """
        query = {"labelSelector": label_selector, "fieldSelector": field_selector, "resourceVersion": resource_version}
        query = {key: value for key, value in query.items() if value} | {"limit": str(page_size)}
        while True:
            try:
                body = self._send("GET", self._path(namespace), query=query)
            except ApiError as error:
                if error.reason != RESPONSE_TOO_LARGE or page_size == 1:
                    raise
                page_size = max(1, page_size // _SMALLER)
                query["limit"] = str(page_size)
                continue
            try:
                page = decode_list(body)
            except msgspec.MsgspecError as error:
                raise _invalid_answer(error, writes=False) from error
            yield page
            if not page.continue_:
                return
            # The token contains the version already, and the server refuses both together.
            query = {key: value for key, value in query.items() if key != "resourceVersion"}
            query["continue"] = page.continue_

    def _object(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> ObjectT:
        data = None if body is None else encode(body)
        answer = self._send(method, path, data, content_type, query=query)
        return self._decoded(answer, writes=method != "GET")

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = JSON,
        *,
        query: Mapping[str, str] | None = None,
        repeatable: bool = False,
    ) -> bytes:
        return self._requester.request(
            method,
            path,
            query=query,
            body=body,
            content_type=content_type,
            timeout_seconds=self._timeout_seconds,
            priority=self._priority,
            retry=self._retry if self._retry is not None else repeatable or None,
        )

    def _decoded(self, data: bytes | msgspec.Raw, *, writes: bool) -> ObjectT:
        try:
            return self._decode(data)
        except msgspec.MsgspecError as error:
            raise _invalid_answer(error, writes=writes) from error


def server_version(requester: Requester) -> tuple[int, int]:
    """Returns the API server's major and minor version; (0, 0) if it does not reveal them. Raises ApiError.

    Of a server that emulates an older version, as in the first step of a cautious upgrade, it is the older one.
    """
    try:
        version = msgspec.json.decode(
            requester.request("GET", "/version", timeout_seconds=_VERSION_SECONDS, retry=False), type=_VersionInfo
        )
        own = _parsed(version.major, version.minor)
        return min(own, _parsed(version.emulation_major, version.emulation_minor)) if version.emulation_minor else own
    except (msgspec.DecodeError, ValueError):
        return (0, 0)
    except ApiError as error:
        if error.is_forbidden or error.is_not_found:
            log.warning("server version unknown, assuming an old one", error=str(error))
            return (0, 0)
        raise


def _parsed(major: str, minor: str) -> tuple[int, int]:
    """Returns the numbers of a version; vendors write "36+". Raises ValueError."""
    return int(major), int("".join(filter(str.isdigit, minor)))


def _invalid_answer(error: msgspec.MsgspecError, *, writes: bool) -> ApiError:
    message = f"the response is not of the expected type: {error}"
    return ApiError(NO_RESPONSE, "InvalidAnswer", message, outcome_unknown=writes)
