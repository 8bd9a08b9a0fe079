"""The config file in overlays/standalone. See also test_overlays.py, and test_user_rights.py for the roles of users."""

from typing import Any

import pytest

from helpers.kubectl import Kubectl
from helpers.renderings import of_kind, render_overlay
from localcluster import images
from tfjob_controller.api.controllerconfig import parse_controller_config

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def rendered(administrator: Kubectl) -> list[dict[str, Any]]:
    return render_overlay(administrator, "standalone")


def test_the_controller_reads_the_shipped_config(rendered: list[dict[str, Any]]) -> None:
    (config_map,) = of_kind(rendered, "ConfigMap")
    (deployment,) = of_kind(rendered, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (mount,) = pod["containers"][0]["volumeMounts"]
    (name,) = config_map["data"]
    assert f"--controller-config-file={mount['mountPath']}/{name}" in pod["containers"][0]["args"]
    assert pod["volumes"] == [{"name": mount["name"], "configMap": {"name": config_map["metadata"]["name"]}}]
    config = parse_controller_config(config_map["data"][name])
    assert config.tf_image
    # Nodes of the local cluster have it under this name, as they have the images of the Deployments.
    assert config.initializer_image in images.tagged(images.plain(config.initializer_image))
