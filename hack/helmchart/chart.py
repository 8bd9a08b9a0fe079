"""The generated files of the chart: copies of manifests, its metadata, and its values with their schema."""

from __future__ import annotations

import configparser
import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from helmchart.values import Value, render_schema, render_table, render_values, values
from localcluster.kubernetesversions import known_minors

CHART = "manifests/helm/tfjob-controller"
_CONFIG = "manifests/base/manager/controller-config.yaml"
# Patterns of manifests that templates include, and the folder in the chart.
_COPIED = {
    "manifests/base/crds/*.yaml": "files/crds",
    "manifests/base/crds-kubeflow-v1/*.yaml": "files/crds-kubeflow-v1",
    "manifests/components/kubeflow-v1/[!k]*.yaml": "files/kubeflow-v1",
    "manifests/base/runtimes/*-distributed.yaml": "files/runtimes",
    "manifests/base/runtimes/plain.yaml": "files/runtimes",
    "manifests/base/extender/scheduler.yaml": "files",
    "manifests/components/monitoring/prometheus/rules.yaml": "files",
    "manifests/components/monitoring/dashboards/*.json": "files/dashboards",
}
# The Secret of a release has all files of the chart. The template of the CRDs makes this one from that of the runtimes
# of a namespace, which has the same fields.
_DERIVED = "manifests/base/crds/kubeflow.org_clustertrainingruntimes.yaml"
# The chart cannot give the rights that MPIJobs need.
_UNUSED = "manifests/base/crds-kubeflow-v1/kubeflow.org_mpijobs.yaml"
_README = """\
<!-- Generated from hack/helmchart by `make generate`. -->
# The Helm chart of tfjob-controller

The chart installs the same objects as the overlays and components of `manifests/`; a test compares both.
`docs/install.md` of the repository describes how to install, upgrade and remove it.

    helm install tfjob-controller manifests/helm/tfjob-controller --namespace tfjob-system --create-namespace \\
      --set image.repository=registry.example.com/tfjob-controller

- **One release in a namespace.** Names of objects are those of the overlays, so commands of the documentation apply.
- **CRDs** are templates: `helm upgrade` upgrades them, `helm rollback` restores the previous ones, and `helm
  uninstall` keeps them, and with them all jobs.
- An unknown or invalid value is an error.

## Values

"""


def files(root: Path, generated: Mapping[str, str]) -> dict[str, str]:
    """Returns the generated files of the chart: path from the project's root → text.

    `generated` has the text of the manifests that are generated at the same time.
    """
    chart_values = all_values(root)
    inside = {
        "Chart.yaml": _metadata(root),
        "values.yaml": render_values(chart_values),
        "values.schema.json": render_schema(chart_values),
        "README.md": f"{_README}{render_table(chart_values)}\n",
        **dict(_copies(root, generated)),
    }
    return {f"{CHART}/{name}": text for name, text in inside.items()}


def all_values(root: Path) -> list[Value]:
    return values(yaml.safe_load((root / _CONFIG).read_text("utf-8")))


def _copies(root: Path, generated: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for pattern, folder in _COPIED.items():
        for path in sorted(root.glob(pattern)):
            name = path.relative_to(root).as_posix()
            if name in (_DERIVED, _UNUSED):
                continue
            yield (
                f"{folder}/{posixpath.basename(name)}",
                _without_comments(generated.get(name) or path.read_text("utf-8")),
            )


def _without_comments(text: str) -> str:
    """Returns the manifest with its first comment alone, since the others are in the original.

    A text whose values would change, such as a file with comments in a ConfigMap, is returned as it is.
    """
    first, *lines = text.splitlines(keepends=True)
    kept = first + "".join(line for line in lines if not line.lstrip().startswith("#"))
    is_same = kept == text or list(yaml.safe_load_all(kept)) == list(yaml.safe_load_all(text))
    return kept if is_same else text


def _metadata(root: Path) -> str:
    setup = configparser.ConfigParser()
    setup.read(root / "setup.cfg", encoding="utf-8")
    metadata = setup["metadata"]
    content: dict[str, Any] = {
        "apiVersion": "v2",
        "name": metadata["name"],
        "description": metadata["description"],
        "type": "application",
        "version": metadata["version"],
        "appVersion": metadata["version"],
        "kubeVersion": f">={known_minors()[0]}.0-0",
        "keywords": ["kubeflow", "tensorflow", "pytorch", "training", "gang-scheduling"],
    }
    return "# Generated from setup.cfg by `make generate`.\n" + yaml.safe_dump(content, sort_keys=False, width=120)
