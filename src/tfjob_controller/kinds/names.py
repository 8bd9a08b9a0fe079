"""The kinds of jobs that the Python client, the plugin and the dashboard know, by their names.

This is the only list of them. A cluster serves one API of TFJobs, `v1alpha1` or `v1`, and they have one name. Only the
standard library is imported, because a command line is read before the types of any kind are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KindName:
    """The names of a kind, which kubectl accepts. The module `clientkind` of the kind's folder has all else."""

    kind: str
    """In manifests."""
    short: str = ""
    """Empty if the CRD has none."""

    @property
    def word(self) -> str:
        """In commands, in the singular."""
        return self.kind.lower()

    @property
    def plural(self) -> str:
        return f"{self.word}s"


# The kinds of this project. Their folders have the names `word`.
OWN_KIND_NAMES: Sequence[KindName] = (KindName("TFJob", "tfj"), KindName("TrainJob", "trj"))
KIND_NAMES: Sequence[KindName] = (
    *OWN_KIND_NAMES,
    # Of `kubeflow.org/v1`, in the folder `kubeflowv1`.
    KindName("PyTorchJob"),
    KindName("XGBoostJob"),
    KindName("JAXJob"),
    KindName("PaddleJob"),
    KindName("MPIJob"),
)
