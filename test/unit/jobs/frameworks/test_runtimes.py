"""The built-in runtimes, as manifests, are those that frameworks name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from helpers.trainsettings import setting_of
from tfjob_controller.jobs.frameworks.base import LAUNCHER, NODE, Framework
from tfjob_controller.jobs.frameworks.registry import BUILT_IN

FOLDER = Path(__file__).parents[4] / "manifests" / "base" / "runtimes"


def manifest(framework: Framework) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / f"{framework.runtime}.yaml").read_text())
    return loaded


def test_each_framework_has_one_and_all_are_applied() -> None:
    files = {f"{each.runtime}.yaml" for each in BUILT_IN}
    assert {path.name for path in FOLDER.iterdir()} == files | {"kustomization.yaml"}
    resources = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert sorted(resources) == sorted(files)


def test_they_have_the_names_and_the_containers_that_their_frameworks_want() -> None:
    for framework in BUILT_IN:
        runtime = manifest(framework)
        assert (runtime["apiVersion"], runtime["kind"]) == ("kubeflow.org/v2alpha1", "ClusterTrainingRuntime")
        assert runtime["metadata"]["name"] == framework.runtime
        assert runtime["spec"]["framework"] == framework.name
        roles = {NODE, LAUNCHER} if framework.has_launcher else {NODE}
        templates = runtime["spec"]["templates"]
        assert set(templates) == roles
        assert all([each["name"] for each in templates[role]["spec"]["containers"]] == [role] for role in roles)


def test_their_defaults_are_nobodys_problem() -> None:
    for framework in BUILT_IN:
        spec = manifest(framework)["spec"]
        setting = setting_of(spec["numNodes"], num_proc_per_node=spec.get("numProcPerNode", ""))
        assert framework.problem(setting) is None


def test_they_set_no_variable_that_is_the_frameworks() -> None:
    for framework in BUILT_IN:
        templates = manifest(framework)["spec"]["templates"].values()
        names = {
            variable["name"]
            for template in templates
            for container in template["spec"]["containers"]
            for variable in container.get("env", ())
        }
        assert not names & framework.reserved
