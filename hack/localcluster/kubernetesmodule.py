"""Locks another version of Kubernetes: `python -m localcluster.kubernetesmodule 1.34.4` writes hack/controlplane/1.34.

The folder gets a go.mod that requires this version and pins its staging modules, and a go.sum with the hashes of
everything that is compiled, so that each build uses the same source. A newer patch version replaces an older one.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from localcluster.errors import LocalClusterError
from localcluster.gotoolchain import downloaded, go_of, run_go
from localcluster.kubernetesversions import CONTROL_PLANE_MODULE, KUBERNETES, KUBERNETES_PROGRAMS
from localcluster.report import Report, to_stderr

_STAGING = re.compile(r"^\s*(?:replace )?(k8s\.io/\S+) => \./staging/", re.MULTILINE)
_GO = re.compile(r"^go (\S+)", re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="localcluster.kubernetesmodule", description=__doc__)
    parser.add_argument("version", type=_version, help="a patch version of Kubernetes, such as 1.34.4")
    try:
        folder = lock(parser.parse_args(arguments).version, to_stderr)
    except LocalClusterError as error:
        to_stderr(f"error: {error}")
        return error.exit_code
    to_stderr(f"next:   make cluster-up KUBERNETES={folder.name}, then commit {folder.relative_to(Path.cwd())}")
    return 0


def lock(version: str, report: Report, root: Path = CONTROL_PLANE_MODULE) -> Path:
    """Writes go.mod and go.sum of a version such as 1.34.4; returns their folder. Raises LocalClusterError."""
    folder = root / version.rpartition(".")[0]
    go = go_of(CONTROL_PLANE_MODULE, report)
    report(f"reading the go.mod of Kubernetes {version}")
    upstream = Path(downloaded(f"{KUBERNETES}@v{version}", go, CONTROL_PLANE_MODULE).go_mod)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.mod").write_text(go_mod(version, upstream.read_text()))
    (folder / "go.sum").unlink(missing_ok=True)
    report("resolving its dependencies with `go mod tidy` (half a minute)")
    run_go(["mod", "tidy"], go, folder)
    return folder


def go_mod(version: str, upstream: str) -> str:
    """Returns a go.mod that builds a version's programs. `upstream` is the go.mod of Kubernetes in that version.

    Kubernetes replaces its staging modules by folders of its own repository. Outside of it, their published versions
    take their place: v0.34.4 belongs to v1.34.4.
    """
    language, staging = _GO.search(upstream), _STAGING.findall(upstream)
    if language is None or not staging:
        raise LocalClusterError(f"the go.mod of Kubernetes {version} names no Go version or no staging modules")
    minor = version.rpartition(".")[0]
    published = f"v0.{version.partition('.')[2]}"
    tools = "".join(f"\t{KUBERNETES}/cmd/{name}\n" for name in KUBERNETES_PROGRAMS)
    replaced = "".join(f"\t{module} => {module} {published}\n" for module in staging)
    return (
        f"module tfjob-controller/hack/controlplane/{minor}\n\ngo {language[1]}\n\n"
        f"tool (\n{tools})\n\nrequire {KUBERNETES} v{version}\n\nreplace (\n{replaced})\n"
    )


def _version(text: str) -> str:
    if not re.fullmatch(r"1\.\d+\.\d+", text):
        raise argparse.ArgumentTypeError("name a patch version, such as 1.34.4")
    return text


if __name__ == "__main__":
    sys.exit(main())
