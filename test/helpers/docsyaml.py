"""Every YAML document that a page shows, and what it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from helpers.docscommands import ROOT, blocks, pages

# Marks parts that a page leaves out.
LEFT_OUT = "…"
OBJECT, PART, CONFIG, ELSEWHERE = "object", "part of a job", "config file", "elsewhere"
OURS = ("kubeflow.org/v1alpha1", "kubeflow.org/v2alpha1", "scheduling.kubeflow.org/v1alpha1")
# API versions of Kubernetes itself.
_BUILT_IN = (
    *("v1", "apps/", "autoscaling/", "batch/", "flowcontrol.apiserver.k8s.io/", "networking.k8s.io/", "policy/"),
    *("rbac.authorization.k8s.io/", "scheduling.k8s.io/v1"),
)
# API versions of other kinds, and the first key of documents that are not objects, with their owner.
_OTHERS = {
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
    "release": "test_installdocs.py reads it",
}
_CONFIG_KEYS = {"tfImage", "initializerImage", "accelerators"}


@dataclass(frozen=True, slots=True)
class Document:
    """In `content`, the parts that the page leaves out are as in the first entry of the same list, or are missing."""

    page: str
    line: int
    content: Any

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def what(self) -> str:
        """Returns OBJECT, PART, CONFIG, or ELSEWHERE; "" if the document is unknown."""
        if not isinstance(self.content, Mapping):
            return ELSEWHERE if set(self.content[0]) & set(_OTHERS) else ""
        version = self.content.get("apiVersion", "")
        if version in OURS or (version not in _OTHERS and version.startswith(_BUILT_IN)):
            return OBJECT
        if set(self.content) == {"spec"}:
            return PART
        if set(self.content) <= _CONFIG_KEYS:
            return CONFIG
        return ELSEWHERE if {version, *self.content} & set(_OTHERS) else ""


def documents() -> list[Document]:
    return [
        Document(page, block.line, _without_gaps(document))
        for page in pages()
        for block in blocks((ROOT / page).read_text("utf-8"))
        if block.language == "yaml"
        for document in yaml.safe_load_all("\n".join(block.lines))
        if document
    ]


def _without_gaps(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_gaps(each) for name, each in value.items() if each != LEFT_OUT}
    if isinstance(value, list):
        return [_without_gaps(_as_the_first(each, value[0])) for each in value if each != LEFT_OUT]
    return value


def _as_the_first(entry: Any, first: Any) -> Any:
    if not (isinstance(entry, dict) and isinstance(first, dict)):
        return entry
    return {name: first.get(name, LEFT_OUT) if each == LEFT_OUT else each for name, each in entry.items()}
