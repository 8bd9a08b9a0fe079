"""Records from a watch which restart attempts of a job's pods ran at the same time."""

from __future__ import annotations

import threading
from typing import Any, Self

import urllib3

from helpers.playground import Trial
from localcluster.api import RefusedError, Watch

GENERATION = "kubeflow.org/generation"

Object = dict[str, Any]


class SetWatch:
    """A watch of one trial's pods. Threads: one for the watch; read `mixed` after the end of the `with`."""

    def __init__(self, trial: Trial) -> None:
        api, self._runtime_id = trial.jobs.api, trial.runtime_id
        path = f"/api/v1/namespaces/{trial.namespace}/pods"
        listed = api.get(path)
        self._there: dict[str, str] = {}
        self._mixed: list[str] = []
        for pod in listed["items"]:
            self._see("ADDED", pod)
        version = listed["metadata"]["resourceVersion"]
        self._watch: Watch = api.watch(path, {"resourceVersion": version, "timeoutSeconds": "300"})
        self._thread = threading.Thread(target=self._run, name="set-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.close()
        self._thread.join(10)

    def mixed(self) -> list[str]:
        """Returns the moments at which unfinished pods of two restart attempts existed."""
        return self._mixed

    def _run(self) -> None:
        try:
            for kind, pod in self._watch:
                self._see(kind, pod)
        except (urllib3.exceptions.HTTPError, RefusedError, ValueError, OSError, AttributeError):
            return  # closed

    def _see(self, kind: str, pod: Object) -> None:
        meta = pod["metadata"]
        labels = meta.get("labels") or {}
        if labels.get("runtime_id") != self._runtime_id:
            return
        if kind == "DELETED" or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            self._there.pop(meta["uid"], None)
        else:
            self._there[meta["uid"]] = labels.get(GENERATION, "")
        if len(set(self._there.values())) > 1:
            self._mixed.append(f"{kind} {meta['name']}: {sorted(self._there.values())}")
