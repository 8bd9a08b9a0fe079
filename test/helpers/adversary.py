"""Another client that undoes what the controller writes to the child Jobs of a namespace, as a foreign queue does."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from types import TracebackType
from typing import Any, Self

from urllib3.exceptions import HTTPError

from localcluster.api import MERGE_PATCH, Api, RefusedError
from tfjob_controller.jobs.naming import CHILD_SELECTOR

Object = dict[str, Any]

MANAGER = "batch-queue"


class Suspender:
    """Suspends each child Job of one job as soon as it is not suspended. `suspensions` counts them by Job."""

    def __init__(self, api: Api, namespace: str, owner: str) -> None:
        """`owner` is the UID of the job."""
        # A patch that changes nothing, because the watch is behind, leaves the generation as it is.
        self._generations: set[tuple[str, int]] = set()
        self._api = api
        self._path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self._owner = owner
        self._watch = api.watch(self._path, {"labelSelector": CHILD_SELECTOR})
        self._thread = threading.Thread(target=self._run, name="suspender", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.close()
        self._thread.join()

    @property
    def suspensions(self) -> Counter[str]:
        return Counter(name for name, _ in list(self._generations))

    def _run(self) -> None:
        with contextlib.suppress(HTTPError):  # The watch is closed.
            for event, obj in self._watch:
                if event in ("ADDED", "MODIFIED") and self._is_active(obj):
                    self._suspend(obj["metadata"]["name"])

    def _is_active(self, job: Object) -> bool:
        owners = [each["uid"] for each in job["metadata"].get("ownerReferences", ())]
        return self._owner in owners and not job["spec"].get("suspend")

    def _suspend(self, name: str) -> None:
        body, query = {"spec": {"suspend": True}}, {"fieldManager": MANAGER}
        with contextlib.suppress(RefusedError):  # It is deleted.
            job = self._api.request("PATCH", f"{self._path}/{name}", body, query=query, content_type=MERGE_PATCH)
            self._generations.add((name, job["metadata"]["generation"]))
