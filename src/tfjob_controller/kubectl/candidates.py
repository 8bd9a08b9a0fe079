"""Names that the cluster and the kubeconfig know, for completion. Few bytes, little patience."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tfjob_controller.kubectl.arguments import job_name
from tfjob_controller.kubectl.session import Session

if TYPE_CHECKING:
    from tfjob_controller.kube.meta import Resource
    from tfjob_controller.kubectl.complete import Line

_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_PATIENCE_SECONDS = 3.0
# More than anybody looks through at a prompt.
_MOST = 500


def jobs(line: Line) -> Iterable[str]:
    """Names; where two jobs have one, or a kind was begun, with their kind in front."""
    from tfjob_controller.client.kinds import KINDS

    with _session(line) as session:
        found = {kind.word: set(_names(session, kind.resource, session.namespace)) for kind in KINDS}
    with_kind = "/" in line.word
    twice = set.intersection(*found.values())
    every = [f"{word}/{name}" if with_kind or name in twice else name for word in found for name in sorted(found[word])]
    return [each for each in every if each not in line.positional]


def tfjobs(line: Line) -> Iterable[str]:
    from tfjob_controller.client.kinds import TFJOB

    with _session(line) as session:
        names = sorted(_names(session, TFJOB.resource, session.namespace))
    return [f"tfjob/{name}" if "/" in line.word else name for name in names]


def replicas(line: Line) -> Iterable[str]:
    """Those that have a pod, their types, and all."""
    from tfjob_controller.api.core import PODS
    from tfjob_controller.client.kinds import KINDS
    from tfjob_controller.trainer.labels import JOB_TYPE, TASK_INDEX, name_value

    if not line.positional:
        return ()
    wanted = job_name(line.positional[0])
    found: set[tuple[str, int]] = set()
    with _session(line) as session:
        for kind in (each for each in KINDS if wanted.kind in ("", each.word)):
            selector = f"{kind.name_label}={name_value(wanted.name)}"
            for meta in _metadata(session, PODS, session.namespace, selector):
                labels = meta.get("labels") or {}
                found.add((labels[JOB_TYPE].lower(), int(labels[TASK_INDEX])))
    types = sorted({role for role, _ in found})
    return ["all", *types, *(f"{role}-{index}" for role, index in sorted(found))]


def namespaces(line: Line) -> Iterable[str]:
    from tfjob_controller.kube.meta import Resource

    with _session(line) as session:
        return sorted(_names(session, Resource("", "v1", "namespaces", "Namespace", namespaced=False)))


def runtimes(line: Line) -> Iterable[str]:
    from tfjob_controller.api.trainingruntime import CLUSTER_TRAINING_RUNTIMES

    with _session(line) as session:
        return sorted(_names(session, CLUSTER_TRAINING_RUNTIMES))


def frameworks(line: Line) -> Iterable[str]:
    from tfjob_controller.api.trainjob import FRAMEWORKS

    return FRAMEWORKS


def contexts(line: Line) -> Iterable[str]:
    """Of the kubeconfig's files; nothing is asked."""
    import os
    from pathlib import Path

    import yaml

    paths = line.values.get("kubeconfig") or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    files = [Path(each) for each in paths.split(os.pathsep) if each and Path(each).is_file()]
    read = [yaml.load(each.read_bytes(), Loader=yaml.CSafeLoader) or {} for each in files]
    return sorted({str(context["name"]) for each in read for context in each.get("contexts") or ()})


@contextmanager
def _session(line: Line) -> Iterator[Session]:
    values = line.values
    flags = {name: values.get(name, "") for name in ("namespace", "kubeconfig", "context")}
    session = Session(Namespace(**flags), logs=True)
    try:
        yield session
    finally:
        session.close()


def _names(session: Session, resource: Resource, namespace: str = "") -> Iterable[str]:
    """Empty for a kind that the cluster does not have, or does not show."""
    from tfjob_controller.kube.errors import ApiError

    try:
        return [str(meta["name"]) for meta in _metadata(session, resource, namespace)]
    except ApiError as error:
        if error.is_not_found or error.is_forbidden:
            return []
        raise


def _metadata(
    session: Session, resource: Resource, namespace: str, label_selector: str = ""
) -> Iterable[Mapping[str, Any]]:
    import msgspec

    query = {"limit": str(_MOST)} | ({"labelSelector": label_selector} if label_selector else {})
    body = session.requester.request(
        "GET",
        resource.path(namespace),
        query=query,
        accept=_METADATA,
        timeout_seconds=_PATIENCE_SECONDS,
        retry=False,
    )
    return [each["metadata"] for each in msgspec.json.decode(body).get("items") or ()]
