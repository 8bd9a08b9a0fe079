"""The proxy of hack/localcluster, where tests look for helpers."""

from __future__ import annotations

from localcluster.faultproxy import Fault, FaultProxy, Late, LoseAnswer, LoseRequest, Reply, Seen

__all__ = ["Fault", "FaultProxy", "Late", "LoseAnswer", "LoseRequest", "Reply", "Seen"]
