"""Every TrainJob and every runtime that the docs show is one that a real API server takes."""

from __future__ import annotations

import pytest

from helpers.docs import DOCS, Shown, shown
from helpers.kubectl import Kubectl

pytestmark = pytest.mark.cluster

# What the page on moving shows for comparison.
OTHERS = "trainer.kubeflow.org/v1alpha1"
KINDS = ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime")
SHOWN = [
    each
    for each in (*shown("trainjob*.md", *KINDS), *shown("README.md", *KINDS, folder=DOCS.parent))
    if each.manifest["apiVersion"] != OTHERS
]


@pytest.mark.parametrize("each", SHOWN, ids=lambda each: each.name)
def test_what_a_page_shows_is_accepted(kubectl: Kubectl, each: Shown) -> None:
    kubectl.must("apply", "--dry-run=server", "--validate=strict", "-f", "-", manifest=each.manifest)


def test_every_page_shows_some() -> None:
    assert {each.page for each in SHOWN} >= {
        "README.md",
        "trainjob.md",
        "trainjob-migration.md",
        "trainjob-frameworks.md",
    }
