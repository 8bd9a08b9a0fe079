"""The containers and volumes by which training pods save and restore checkpoints.

An init container restores the newest checkpoint before the program starts. A native sidecar, an init container that
runs as long as the program, saves what the program writes, and gets SIGTERM after the program has ended. Both share one
volume with the program, and have the credentials of the storage, which the program does not get.

Variables of a running container cannot depend on what an init container finds, and the template of a Job is fixed. So
`TRAINJOB_RESUME_FROM` is always the same path: a link to the restored checkpoint, which is absent at the first start.
The sidecar moves the link to what it has saved, because init containers do not run again when the kubelet restarts the
program's container alone.

Source: KEP-753 (sidecar containers). Pure: arguments are never changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfjob_controller.api.common.storage import Checkpoint
from tfjob_controller.jobs.podtemplate.merge import (
    Part,
    container_of,
    override_items,
    spec_of,
    with_container,
    with_mounts,
    with_spec,
)
from tfjob_controller.jobs.podtemplate.storage import (
    StorageContainer,
    claim_mount,
    claim_of,
    claim_volume,
    is_claim,
    security_context_beside,
    storage_container,
)
from tfjob_controller.util.keyedlists import complete_items, normal_path

RESTORER, SAVER = "checkpoint-restore", "checkpoint-save"
VOLUME = "checkpoints"
CHECKPOINT_DIR, RESUME_FROM = "TRAINJOB_CHECKPOINT_DIR", "TRAINJOB_RESUME_FROM"
# The link to the restored checkpoint, in the folder of the checkpoints.
LINK = ".resume-from"
# Where the two containers see the folder of a pvc:// URI.
STORE_PATH = "/workspace/.checkpoint-store"
# Kubernetes' default is 30 s, in which the program and then the sidecar must end.
GRACE_SECONDS = 60
# The sidecar stops this long before the kubelet would kill it, to say what it has not saved.
_RESERVE_SECONDS = 5
_FILE = "file://"


def with_checkpoint_variables(template: Part, container: str, checkpoint: Checkpoint) -> dict[str, Any]:
    """Tells the program where its checkpoints are. Variables that the job sets itself stay."""
    env = [
        {"name": CHECKPOINT_DIR, "value": checkpoint.path},
        {"name": RESUME_FROM, "value": f"{checkpoint.path}/{LINK}"},
    ]
    return with_container(
        template, container, lambda base: {**base, "env": complete_items(base.get("env"), env, "name")}
    )


def with_checkpoints(
    template: Part, container: str, checkpoint: Checkpoint, image: str, *, saves: bool = True
) -> dict[str, Any]:
    """Adds the two containers and the volume that they share with the training container.

    If the job itself mounts a volume at the path, that one is shared. Init containers of these names in the template
    give fields such as resources. `saves` is False for pods that only restore.
    """
    training = container_of(spec_of(template), container) or {}
    shared = [mount for mount in training.get("volumeMounts") or () if _path(mount) == checkpoint.path]
    volumes: list[Part] = [] if shared else [{"name": VOLUME, "emptyDir": {}}]
    shared = shared or [{"name": VOLUME, "mountPath": checkpoint.path}]
    changed = with_container(template, container, lambda base: with_mounts(base, shared))
    spec = spec_of(changed)
    mounts = [*shared, *_store_mounts(checkpoint, training)]
    if is_claim(checkpoint.storage_uri):
        claim, _ = claim_of(checkpoint.storage_uri)
        volumes.append({"name": claim_volume(claim), "persistentVolumeClaim": {"claimName": claim}})
    given = {init.get("name", ""): init for init in spec.get("initContainers") or ()}
    security = {"securityContext": security_context_beside(training, spec)}
    restorer = _container(security | given.pop(RESTORER, {}), RESTORER, checkpoint, image, ("restore",), mounts)
    saver = security | given.pop(SAVER, {})
    complete = with_spec(
        changed,
        volumes=override_items(spec.get("volumes"), volumes),
        initContainers=[restorer, *given.values()],
    )
    return _with_saver(complete, saver, checkpoint, image, mounts) if saves else complete


def _with_saver(template: Part, base: Part, checkpoint: Checkpoint, image: str, mounts: list[Part]) -> dict[str, Any]:
    """Adds the sidecar after the other init containers, and the time that it needs when the pod is deleted."""
    spec = spec_of(template)
    grace = int(spec.get("terminationGracePeriodSeconds") or GRACE_SECONDS)
    ends = f"--grace-seconds={max(1, grace - _RESERVE_SECONDS)}"
    saver = _container(base, SAVER, checkpoint, image, ("save", *_saving(checkpoint), ends), mounts)
    return with_spec(
        template,
        terminationGracePeriodSeconds=grace,
        initContainers=[*(spec.get("initContainers") or ()), {**saver, "restartPolicy": "Always"}],
    )


def _container(
    base: Part, role: str, checkpoint: Checkpoint, image: str, arguments: tuple[str, ...], mounts: list[Part]
) -> dict[str, Any]:
    command = ("checkpoint", *arguments, *_flags(checkpoint))
    storage = StorageContainer(role, command, checkpoint.storage_uri, checkpoint.env, checkpoint.secret_ref)
    return with_mounts(storage_container(storage, base, image), mounts)


def _flags(checkpoint: Checkpoint) -> Iterator[str]:
    yield f"--path={checkpoint.path}"
    if checkpoint.per_node:
        yield "--per-node=true"
    if is_claim(checkpoint.storage_uri):
        yield f"--store-path={STORE_PATH}"


def _saving(checkpoint: Checkpoint) -> Iterator[str]:
    yield f"--keep={checkpoint.keep}"
    yield f"--settle-seconds={checkpoint.settle_seconds}"
    if checkpoint.max_bandwidth:
        yield f"--max-bandwidth={checkpoint.max_bandwidth}"


def _store_mounts(checkpoint: Checkpoint, training: Part) -> Iterator[Part]:
    """Yields where the storage is, if it is a claim or on a volume of the training container."""
    uri = checkpoint.storage_uri
    if is_claim(uri):
        yield claim_mount(STORE_PATH, *claim_of(uri))
    if not uri.startswith(_FILE):
        return
    path = normal_path(uri.removeprefix(_FILE)) + "/"
    for mount in training.get("volumeMounts") or ():
        if path.startswith(_path(mount).rstrip("/") + "/"):
            yield mount


def _path(mount: Part) -> str:
    return normal_path(str(mount.get("mountPath", "")))
