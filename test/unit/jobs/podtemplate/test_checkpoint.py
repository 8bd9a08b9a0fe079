"""The rules of jobs/podtemplate/checkpoint.py: who saves and restores checkpoints, and where they find them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tfjob_controller.api.common.storage import Checkpoint
from tfjob_controller.jobs.podtemplate.checkpoint import with_checkpoint_variables, with_checkpoints
from tfjob_controller.jobs.podtemplate.merge import container_of

Object = dict[str, Any]

IMAGE = "localhost/storage"
STORE = {"name": "claim-disk", "mountPath": "/workspace/.checkpoint-store"}


def checkpoint(**fields: Any) -> Checkpoint:
    return msgspec.convert({"storageUri": "s3://bucket/job", **fields}, Checkpoint)


def template(**spec: Any) -> Object:
    return {"spec": {"containers": [{"name": "node", "image": "train"}], **spec}}


def made(before: Object | None = None, **fields: Any) -> Object:
    spec: Object = with_checkpoints(before or template(), "node", checkpoint(**fields), IMAGE)["spec"]
    return spec


def init_container(spec: Object, name: str) -> Object:
    (found,) = [each for each in spec["initContainers"] if each["name"] == name]
    return dict(found)


def mounts_of(container: Object) -> list[Object]:
    return list(container["volumeMounts"])


def test_one_container_restores_before_the_program_starts_and_one_saves_as_long_as_it_runs() -> None:
    spec = made(template(initContainers=[{"name": "theirs"}]))
    assert [(each["name"], each.get("restartPolicy")) for each in spec["initContainers"]] == [
        ("checkpoint-restore", None),
        ("theirs", None),
        ("checkpoint-save", "Always"),
    ]
    assert init_container(spec, "checkpoint-restore")["args"] == [
        "checkpoint",
        "restore",
        "--path=/workspace/checkpoints",
    ]
    assert init_container(spec, "checkpoint-save")["args"] == [
        "checkpoint",
        "save",
        "--keep=3",
        "--settle-seconds=10",
        "--grace-seconds=55",
        "--path=/workspace/checkpoints",
    ]


def test_only_these_two_have_the_credentials() -> None:
    secret, region = {"name": "keys"}, {"name": "AWS_REGION", "value": "eu-1"}
    spec = made(secretRef=secret, env=[region])
    for name in ("checkpoint-restore", "checkpoint-save"):
        container = init_container(spec, name)
        assert container["envFrom"] == [{"secretRef": secret}]
        assert container["env"] == [region, {"name": "STORAGE_URI", "value": "s3://bucket/job"}]
    training = container_of(spec, "node") or {}
    assert not {"env", "envFrom"} & training.keys()


@pytest.mark.parametrize(
    ("pod", "own", "user", "is_root"),
    [
        pytest.param(None, None, 0, True, id="the image's, root in most"),
        pytest.param({"runAsUser": 1000}, None, None, False, id="the pod's, which holds for all its containers"),
        pytest.param({"runAsUser": 0}, None, None, True, id="root, since the pod says so"),
        pytest.param({"runAsUser": 0}, {"runAsUser": 1000, "runAsGroup": 5}, 1000, False, id="the container's own"),
        pytest.param({"runAsNonRoot": True}, None, None, False, id="any but root"),
        pytest.param({"runAsNonRoot": True}, {"runAsNonRoot": False}, 0, True, id="root, since the container may"),
    ],
)
def test_both_run_as_the_user_of_the_program_without_any_capability(
    pod: Object | None, own: Object | None, user: int | None, is_root: bool
) -> None:
    """Its files may be readable for it alone."""
    before = template(securityContext=pod)
    before["spec"]["containers"][0]["securityContext"] = own
    spec = made(before)
    for name in ("checkpoint-restore", "checkpoint-save"):
        context = init_container(spec, name)["securityContext"]
        assert (context.get("runAsUser"), context["runAsNonRoot"]) == (user, not is_root)
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["allowPrivilegeEscalation"] is False
        assert context.get("runAsGroup") == (own or {}).get("runAsGroup")


def test_the_program_and_both_share_an_empty_volume() -> None:
    spec = made(path="/ckpt")
    shared = [{"name": "checkpoints", "mountPath": "/ckpt"}]
    assert spec["volumes"] == [{"name": "checkpoints", "emptyDir": {}}]
    for container in (spec["containers"][0], *spec["initContainers"]):
        assert mounts_of(container) == shared


@pytest.mark.parametrize("path", ["/ckpt", "//ckpt/."])
def test_a_volume_of_the_job_at_the_path_is_shared_instead(path: str) -> None:
    mount = {"name": "fast", "mountPath": path, "subPath": "a"}
    before = template(volumes=[{"name": "fast", "hostPath": {"path": "/nvme"}}])
    before["spec"]["containers"][0]["volumeMounts"] = [mount]
    spec = made(before, path="/ckpt")
    assert [each["name"] for each in spec["volumes"]] == ["fast"]
    assert mounts_of(init_container(spec, "checkpoint-save")) == [mount]


def test_a_claim_is_mounted_where_only_these_two_see_it() -> None:
    spec = made(storageUri="pvc://disk/runs/1")
    assert spec["volumes"][1] == {"name": "claim-disk", "persistentVolumeClaim": {"claimName": "disk"}}
    for name in ("checkpoint-restore", "checkpoint-save"):
        container = init_container(spec, name)
        assert {**STORE, "subPath": "runs/1"} in mounts_of(container)
        assert "--store-path=/workspace/.checkpoint-store" in container["args"]
    assert [each["name"] for each in mounts_of(spec["containers"][0])] == ["checkpoints"]


@pytest.mark.parametrize("uri", ["file:///shared/runs", "file:///share/../shared/./runs"])
def test_a_path_on_a_volume_of_the_program_is_seen_by_both(uri: str) -> None:
    before = template(volumes=[{"name": "nfs"}])
    seen, other = ({"name": "nfs", "mountPath": path} for path in ("/shared/", "/share"))
    before["spec"]["containers"][0]["volumeMounts"] = [seen, other]
    spec = made(before, storageUri=uri)
    assert mounts_of(init_container(spec, "checkpoint-save"))[1:] == [seen]


def test_settings_are_flags_of_the_container_that_saves() -> None:
    spec = made(keep=7, settleSeconds=60, maxBandwidth="50M", perNode=True)
    flags = {"--keep=7", "--settle-seconds=60", "--max-bandwidth=50M", "--per-node=true"}
    assert flags <= set(init_container(spec, "checkpoint-save")["args"])


def test_both_restore_and_save_by_node() -> None:
    assert "--per-node=true" in init_container(made(perNode=True), "checkpoint-restore")["args"]


@pytest.mark.parametrize(("own", "whole", "rest"), [(None, 60, 55), (10, 10, 5), (3, 3, 1)])
def test_the_last_save_ends_before_the_pods_grace_period(own: int | None, whole: int, rest: int) -> None:
    spec = made(template(**({"terminationGracePeriodSeconds": own} if own else {})))
    assert spec["terminationGracePeriodSeconds"] == whole
    assert f"--grace-seconds={rest}" in init_container(spec, "checkpoint-save")["args"]


def test_the_template_may_give_both_resources() -> None:
    given = [{"name": name, "resources": {"limits": {"memory": "1Gi"}}} for name in ("checkpoint-save", "other")]
    spec = made(template(initContainers=given))
    assert init_container(spec, "checkpoint-save")["resources"] == {"limits": {"memory": "1Gi"}}
    assert [each["name"] for each in spec["initContainers"]] == ["checkpoint-restore", "other", "checkpoint-save"]


def test_a_pod_that_only_restores_has_neither_the_container_that_saves_nor_a_longer_end() -> None:
    given = [{"name": "checkpoint-save", "resources": {"limits": {"memory": "1Gi"}}}]
    changed = with_checkpoints(template(initContainers=given), "node", checkpoint(), IMAGE, saves=False)["spec"]
    assert [each["name"] for each in changed["initContainers"]] == ["checkpoint-restore"]
    assert "terminationGracePeriodSeconds" not in changed
    assert mounts_of(changed["containers"][0]) == mounts_of(init_container(changed, "checkpoint-restore"))


def test_the_program_is_told_where_its_checkpoints_are_unless_the_job_says_it() -> None:
    before = template()
    before["spec"]["containers"][0]["env"] = [{"name": "TRAINJOB_CHECKPOINT_DIR", "value": "/mine"}]
    changed = with_checkpoint_variables(before, "node", checkpoint(path="/ckpt"))
    (container,) = changed["spec"]["containers"]
    assert container["env"] == [
        {"name": "TRAINJOB_CHECKPOINT_DIR", "value": "/mine"},
        {"name": "TRAINJOB_RESUME_FROM", "value": "/ckpt/.resume-from"},
    ]
