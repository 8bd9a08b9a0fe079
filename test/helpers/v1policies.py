"""What a cluster with the jobs of `kubeflow.org/v1` has: this project's CRDs and the policies that judge the jobs."""

from __future__ import annotations

from pathlib import Path

import yaml

from helpers.kubectl import MANIFESTS, Kubectl
from helpers.renderings import of_kind, render_with
from localcluster.api import Api
from localcluster.crds import documents, install_crd

POLICY_NAMES = ("tfjob-controller-kubeflow-v1-validation", "tfjob-controller-kubeflow-v1-deprecations")
_KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


def install_own_crds(api: Api) -> None:
    for path in sorted((MANIFESTS / "base/crds-kubeflow-v1").glob("*.yaml")):
        for crd in documents(path.read_text()):
            install_crd(api, crd)


def apply_policies(kubectl: Kubectl, folder: Path) -> None:
    """Applies the policies of the component kubeflow-v1; the server obeys them a moment later."""
    rendered = of_kind(render_with(kubectl, folder, "standalone", "kubeflow-v1"), *_KINDS)
    policies = [policy for policy in rendered if policy["metadata"]["name"] in POLICY_NAMES]
    assert len(policies) == len(POLICY_NAMES) * len(_KINDS)
    kubectl.must("apply", "-f", "-", manifest=yaml.safe_dump_all(policies))
