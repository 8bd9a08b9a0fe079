"""On which version of Kubernetes the tests run, and which tests apply to it.

    @pytest.mark.kubernetes("1.36", "PodGroups of scheduling.k8s.io/v1alpha2 exist since then")

An older version does not run that test. It is not counted as skipped, but as not applicable, which does not fail CI. A
marker that names a version after the default one fails, so no test is left out on the default version.
"""

from __future__ import annotations

import functools
import os

import pytest

from localcluster import stack
from localcluster.api import Api
from localcluster.gotoolchain import Version, parse_version
from localcluster.kubernetesversions import chosen_minor, default_minor

MARKER = "kubernetes"
NOT_APPLICABLE = "not applicable: "
# Reasons that several tests share.
STREAMING_SINCE = "1.34"
STREAMING = "streaming lists (sendInitialEvents) are on by default since then"
RESTART_RULES = "container-level restart rules are on by default since then"


@functools.cache
def running_version() -> Version:
    """Returns the major and minor version of the API server, such as (1, 36)."""
    existing = stack.existing_kubeconfig()
    if existing is None:
        return parse_version(chosen_minor())[:2]
    api = Api.from_kubeconfig(existing.split(os.pathsep)[0])
    try:
        return parse_version(str(api.get("/version")["gitVersion"]))[:2]
    finally:
        api.close()


def is_older_than(version: str) -> bool:
    """Reports whether the API server is older than a minor version such as 1.36."""
    return running_version() < parse_version(version)[:2]


def check_marker(item: pytest.Item) -> None:
    """Skips the test if the version that runs is older than a marker's."""
    for marker in item.iter_markers(MARKER):
        since, reason = marker.args
        if parse_version(since)[:2] > parse_version(default_minor())[:2]:
            pytest.fail(f"needs Kubernetes {since}, but the default version is {default_minor()}", pytrace=False)
        if is_older_than(since):
            runs = ".".join(map(str, running_version()))
            pytest.skip(f"{NOT_APPLICABLE}needs Kubernetes {since}, this is {runs}: {reason}")


def is_not_applicable(report: pytest.TestReport) -> bool:
    """Reports whether a skipped test does not apply to the version."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return NOT_APPLICABLE in reason
