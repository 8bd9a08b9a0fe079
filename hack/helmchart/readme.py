"""The README of the chart, which `helm show readme` prints."""

from __future__ import annotations

from collections.abc import Sequence

from helmchart.values import Value, render_table

_TEXT = """\
<!-- Generated from hack/helmchart by `make generate`. -->
# The Helm chart of tfjob-controller

The chart installs what the overlays and components of `manifests/` install; it is generated from them.
`docs/install.md` of the repository describes how to install, upgrade and remove it.

    helm install tfjob-controller manifests/helm/tfjob-controller --namespace tfjob-system --create-namespace \\
      --set image.repository=registry.example.com/tfjob-controller

- **One release in a namespace.** Names of objects are those of the overlays, so commands of the documentation apply.
- **CRDs** are templates: `helm upgrade` upgrades them, `helm rollback` restores the previous ones, and `helm
  uninstall` keeps them, and with them all jobs.
- An unknown or wrong value is an error.

## Values

"""


def render_readme(found: Sequence[Value]) -> str:
    return _TEXT + render_table(found) + "\n"
