"""The Prometheus operator's CRDs that the monitoring component uses, as the operator publishes them."""

from __future__ import annotations

import yaml

from localcluster.api import Api
from localcluster.crds import install_crd
from localcluster.foreigncrds import Published, fetched
from localcluster.gobuild import go_of
from localcluster.program import HACK
from localcluster.report import Report, to_stderr

_FOLDER = "example/prometheus-operator-crd"
PUBLISHED = tuple(
    Published(
        "github.com/prometheus-operator/prometheus-operator",
        "v0.83.0",
        "h1:qAKbm+45fqNGcn9sGTa1Ae2TM3KZuYA/uyoD2QKi9+o=",
        f"{_FOLDER}/monitoring.coreos.com_{plural}.yaml",
    )
    for plural in ("podmonitors", "prometheusrules")
)


def install_monitoring_crds(api: Api, report: Report = to_stderr) -> None:
    """Applies PodMonitor and PrometheusRule, which are downloaded first if necessary. Raises LocalClusterError."""
    # Any module's folder suffices: it only determines which Go is new enough.
    go = go_of(HACK / "gangcrds", report)
    for published in PUBLISHED:
        install_crd(api, yaml.safe_load(fetched(go, published).read_text()))
