"""The rules of api/common/podtemplates.py."""

import copy
from typing import Any

import pytest

from helpers.manifests import container, pod_template
from tfjob_controller.api.common.podtemplates import apply_accelerators
from tfjob_controller.api.controllerconfig import Accelerator, EnvVar, HostVolume
from tfjob_controller.api.tfjob.types import CONTAINER_NAME

GPU = "nvidia.com/gpu"
OLD_GPU = "alpha.kubernetes.io/nvidia-gpu"
NVIDIA = Accelerator(
    (HostVolume("lib", "/opt/nvidia/lib64", "/usr/local/nvidia/lib64"),),
    (EnvVar("LD_LIBRARY_PATH", "/usr/local/nvidia/lib64"),),
)
CONFIG = {GPU: NVIDIA, OLD_GPU: NVIDIA}

VOLUME = {"name": "lib", "hostPath": {"path": "/opt/nvidia/lib64"}}
MOUNT = {"name": "lib", "mountPath": "/usr/local/nvidia/lib64"}
VARIABLE = {"name": "LD_LIBRARY_PATH", "value": "/usr/local/nvidia/lib64"}


@pytest.mark.parametrize(
    "resources",
    [
        pytest.param({"limits": {GPU: 1}}, id="limits"),
        pytest.param({"requests": {GPU: "2"}}, id="requests"),
        pytest.param({"limits": {GPU: 1, OLD_GPU: 1}}, id="both names, with the same volume"),
        pytest.param({"limits": None, "requests": {GPU: 1}}, id="beside a null"),
    ],
)
def test_a_container_that_requests_an_accelerator_gets_volumes_mounts_and_variables(resources: dict[str, Any]) -> None:
    template = pod_template(container(resources=resources), restartPolicy="Never")
    equipped = container(resources=resources, volumeMounts=[MOUNT], env=[VARIABLE])
    assert apply_accelerators(template, CONFIG, CONTAINER_NAME) == pod_template(
        equipped, restartPolicy="Never", volumes=[VOLUME]
    )


@pytest.mark.parametrize(
    "template",
    [
        pytest.param(pod_template(container()), id="asks for nothing"),
        pytest.param(pod_template(container(resources={"limits": {GPU: 0}})), id="asks for none of it"),
        pytest.param(
            pod_template(container("sidecar", resources={"limits": {GPU: 1}}), container()), id="a sidecar asks"
        ),
        pytest.param(pod_template(container(resources=None)), id="resources are null"),
        pytest.param({"metadata": {}}, id="no spec"),
        pytest.param({"spec": {"containers": None}}, id="no containers"),
    ],
)
def test_others_stay_as_they_are(template: dict[str, Any]) -> None:
    assert apply_accelerators(template, CONFIG, CONTAINER_NAME) == template


def test_what_the_template_has_already_stays_and_comes_first() -> None:
    mine = {"name": "data", "mountPath": "/data"}
    template = pod_template(
        container(
            resources={"limits": {GPU: 1}},
            env=[{"name": "LD_LIBRARY_PATH", "value": "/mine"}, {"name": "A", "value": "b"}],
            volumeMounts=[mine],
        ),
        volumes=[{"name": "data", "emptyDir": {}}],
    )
    spec = apply_accelerators(template, CONFIG, CONTAINER_NAME)["spec"]
    assert spec["volumes"] == [{"name": "data", "emptyDir": {}}, VOLUME]
    assert spec["containers"][0]["volumeMounts"] == [mine, MOUNT]
    assert [each["value"] for each in spec["containers"][0]["env"]] == ["/mine", "b"]


def test_a_mount_at_the_same_path_stays_however_it_is_written() -> None:
    mine = {"name": "data", "mountPath": "/usr/local//nvidia/lib64/"}
    template = pod_template(container(resources={"limits": {GPU: 1}}, volumeMounts=[mine]))
    spec = apply_accelerators(template, CONFIG, CONTAINER_NAME)["spec"]
    assert spec["containers"][0]["volumeMounts"] == [mine]


def test_the_training_container_may_have_another_name() -> None:
    asking = {"limits": {GPU: 1}}
    template = pod_template(container(resources=asking), container("node", resources=asking))
    first, second = apply_accelerators(template, CONFIG, "node")["spec"]["containers"]
    assert first == container(resources=asking)
    assert second["env"] == [VARIABLE]
    assert apply_accelerators(template, CONFIG, "launcher") == template


def test_an_accelerator_that_needs_nothing_adds_no_empty_lists() -> None:
    template = pod_template(container(resources={"limits": {GPU: 1}}))
    assert apply_accelerators(template, {GPU: Accelerator()}, CONTAINER_NAME) == template


def test_the_template_given_is_not_changed() -> None:
    template = pod_template(container(resources={"limits": {GPU: 1}}, env=[]), volumes=[])
    before = copy.deepcopy(template)
    apply_accelerators(template, CONFIG, CONTAINER_NAME)
    assert template == before
