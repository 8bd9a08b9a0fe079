"""Records the PriorityClasses with which the API server has admitted pods, by namespace.

A Gang may name any PriorityClass: quotas and policies restrict its use by pods, and a gang that preempts others has no
pods yet. So a class counts once a pod of the namespace with this class was seen, whichever pod this was.

The observations are not stored. A new process learns them from the pods that exist, finished ones included, and a
standby replica observes them as well.
"""

from __future__ import annotations

import threading

from tfjob_controller.util.fairness import FairCache

# Pairs of namespaces and classes. Both are made by administrators, so that no tenant displaces those of others.
_MAX_PAIRS = 4096


class AdmittedClasses:
    """The PriorityClasses of the pods that were seen. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: FairCache[str, bool] = FairCache(_MAX_PAIRS)

    def add(self, namespace: str, name: str) -> bool:
        """Record the class of a pod, if it has one. Returns whether it was not known."""
        with self._lock:
            if not name or self._seen.get(namespace, name):
                return False
            self._seen.put(namespace, name, True)
            return True

    def has(self, namespace: str, name: str) -> bool:
        with self._lock:
            return self._seen.get(namespace, name) is True
