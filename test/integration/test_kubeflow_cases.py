"""What Kubeflow Trainer's own tests promise, on a real API server. See `kubeflowcases`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.cluster import Cluster
from helpers.kubectl import Kubectl
from helpers.kubeflowcases import CaseRun
from helpers.kubeflowjobs import KubeflowCluster, kubeflow_cluster
from kubeflowcases.model import Case
from kubeflowcases.table import CASES

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def kubeflow(control_plane: Cluster, administrator: Kubectl) -> Iterator[KubeflowCluster]:
    with kubeflow_cluster(control_plane) as cluster:
        yield cluster


@pytest.mark.parametrize("case", [pytest.param(each, id=each.name) for each in CASES if not each.is_pure])
def test_a_promise_of_upstreams_tests_is_kept_or_its_difference_is_as_described(
    kubeflow: KubeflowCluster, case: Case
) -> None:
    CaseRun(kubeflow, case).check()


def test_the_api_server_stores_the_objects_of_the_other_cases_as_they_are(kubeflow: KubeflowCluster) -> None:
    """These cases are compared with the plan of the job (test/unit/kubeflowcases)."""
    for case in CASES:
        if case.is_pure:
            CaseRun(kubeflow, case).check_stored()
