"""All cases by topic."""

from __future__ import annotations

from collections.abc import Mapping

from kubeflowcases import admission, frameworks, lifecycle, mpi, pods, processes, published
from kubeflowcases.model import Case

TOPICS: Mapping[str, tuple[Case, ...]] = {
    "Runtimes that upstream publishes": published.CASES,
    "What programs find": frameworks.CASES,
    "MPI": mpi.CASES,
    "Processes and torchtune": processes.CASES,
    "Patches, initializers and variables": pods.CASES,
    "Suspension, ends, deadlines and runtimes": lifecycle.CASES,
    "What is accepted, and what is refused": admission.CASES,
}
CASES: tuple[Case, ...] = tuple(case for topic in TOPICS.values() for case in topic)
