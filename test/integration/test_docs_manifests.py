"""A real API server accepts every object in the README and the docs; no YAML block is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from helpers.docs import ROOT, blocks, pages
from helpers.kubectl import MANIFESTS, Kubectl
from tfjob_controller.api.controllerconfig import parse_controller_config

# Marks parts that a page leaves out.
LEFT_OUT = "…"
OBJECT, PART, CONFIG, ELSEWHERE = "object", "part of a job", "config file", "elsewhere"
OURS = ("kubeflow.org/v1alpha1", "kubeflow.org/v2alpha1", "scheduling.kubeflow.org/v1alpha1")
# API versions of Kubernetes itself.
BUILT_IN = (
    *("v1", "apps/", "autoscaling/", "batch/", "flowcontrol.apiserver.k8s.io/", "networking.k8s.io/", "policy/"),
    *("rbac.authorization.k8s.io/", "scheduling.k8s.io/v1"),
)
# API versions of other kinds, and the first key of documents that are not objects, with their owner.
OTHERS = {
    "kubeflow.org/v1": "Kubeflow's, for comparison",
    "kubeflow.org/v1alpha2": "Kubeflow's, for comparison",
    "kubeflow.org/v1beta1": "Kubeflow's, for comparison",
    "kubeflow.org/v2beta1": "Kubeflow's, for comparison",
    "trainer.kubeflow.org/v1alpha1": "Kubeflow's, for comparison",
    "admissionregistration.k8s.io/v1": "test_gang_priority_policy.py applies them",
    "kueue.x-k8s.io/v1beta1": "test_gang_backend_objects.py applies them",
    "scheduling.volcano.sh/v1beta1": "test/interop/test_volcano.py makes such a queue",
    "kustomize.config.k8s.io/v1beta1": "test_monitoring_docs.py and test_production.py render them",
    "namespace": "test_gang_backend_objects.py renders the overlay",
    "scrape_configs": "test_monitoring_docs.py runs a Prometheus with it",
}
CONFIG_KEYS = {"tfImage", "initializerImage", "accelerators"}


@dataclass(frozen=True, slots=True)
class Document:
    """In `content`, the parts that the page leaves out are as in the first entry of the same list, or are missing."""

    place: str
    content: Any

    @property
    def role(self) -> str:
        """OBJECT, PART, CONFIG, or ELSEWHERE; "" if the document is unknown."""
        if not isinstance(self.content, Mapping):
            return ELSEWHERE if set(self.content[0]) & set(OTHERS) else ""
        version = self.content.get("apiVersion", "")
        if version in OURS or (version not in OTHERS and version.startswith(BUILT_IN)):
            return OBJECT
        if set(self.content) == {"spec"}:
            return PART
        if set(self.content) <= CONFIG_KEYS:
            return CONFIG
        return ELSEWHERE if {version, *self.content} & set(OTHERS) else ""


def without_gaps(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_gaps(field) for name, field in value.items() if field != LEFT_OUT}
    if isinstance(value, list):
        return [without_gaps(like_the_first(entry, value[0])) for entry in value if entry != LEFT_OUT]
    return value


def like_the_first(entry: Any, first: Any) -> Any:
    if not (isinstance(entry, dict) and isinstance(first, dict)):
        return entry
    return {name: first.get(name, LEFT_OUT) if field == LEFT_OUT else field for name, field in entry.items()}


DOCUMENTS = [
    Document(f"{page}:{block.line}", without_gaps(document))
    for page in pages()
    for block in blocks((ROOT / page).read_text("utf-8"))
    if block.language == "yaml"
    for document in yaml.safe_load_all("\n".join(block.lines))
    if document
]


def contents_of(role: str) -> list[Any]:
    return [document.content for document in DOCUMENTS if document.role == role]


def example_job() -> dict[str, Any]:
    sample = (MANIFESTS / "samples" / "example-job.yaml").read_text("utf-8")
    (job,) = [manifest for manifest in yaml.safe_load_all(sample) if manifest["kind"] == "TFJob"]
    return dict(job)


@pytest.mark.cluster
def test_objects_and_parts_of_jobs_that_pages_show_are_accepted(kubectl: Kubectl) -> None:
    job = example_job()
    jobs = [{**job, "spec": {**job["spec"], **part["spec"]}} for part in contents_of(PART)]
    manifest = yaml.safe_dump_all([*contents_of(OBJECT), *jobs])
    kubectl.must("apply", "--dry-run=server", "--validate=strict", "-f", "-", manifest=manifest)


def test_config_files_that_pages_show_can_be_read() -> None:
    for content in contents_of(CONFIG):
        parse_controller_config(yaml.safe_dump(content))


def test_the_role_of_all_yaml_that_pages_show_is_known() -> None:
    assert [document.place for document in DOCUMENTS if not document.role] == []
    assert {document.role for document in DOCUMENTS} == {OBJECT, PART, CONFIG, ELSEWHERE}
    shown = {document.place.partition(":")[0] for document in DOCUMENTS if document.role == OBJECT}
    assert shown >= {"README.md", "docs/trainjob.md", "docs/trainjob-migration.md", "docs/trainjob-frameworks.md"}
