"""`python -m generate` writes every generated file; `python -m generate --check` lists those that are out of date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from generate import kinds, prometheusrule, samples, testruns
from generate.crd import CustomKind, render_crd
from generate.interop import render_interop
from generate.kindreference import render_gang, render_tfjob, render_trainingruntime, render_trainjob
from generate.kubeflowcases import render_kubeflow_cases
from generate.kubeflowv1cases import render_kubeflow_v1_cases
from generate.reference import render_events, render_flags, render_metrics
from generate.v1kinds import render_v1_crd
from helmchart import chart
from tfjob_controller.api.kubeflowv1.types import API_GROUP, V1_KINDS

ROOT = Path(__file__).resolve().parents[2]


def _crd_path(kind: CustomKind) -> str:
    return f"manifests/base/crds/{kind.resource.group}_{kind.resource.plural}.yaml"


PAGES: Mapping[str, Callable[[], str]] = {
    **{_crd_path(kind): partial(render_crd, kind) for kind in kinds.KINDS},
    **{
        f"manifests/base/crds-kubeflow-v1/{API_GROUP}_{kind.plural}.yaml": partial(render_v1_crd, kind)
        for kind in V1_KINDS.values()
    },
    "docs/reference/tfjob.md": render_tfjob,
    "docs/reference/gang.md": render_gang,
    "docs/reference/trainjob.md": render_trainjob,
    "docs/reference/trainingruntime.md": render_trainingruntime,
    "docs/reference/events.md": render_events,
    "docs/reference/flags.md": render_flags,
    "docs/reference/metrics.md": render_metrics,
    "docs/kubeflow-trainer-cases.md": render_kubeflow_cases,
    "docs/kubeflow-v1-cases.md": render_kubeflow_v1_cases,
    "docs/interop.md": render_interop,
    prometheusrule.PATH: partial(prometheusrule.render_prometheus_rule, ROOT),
}


def generated(root: Path) -> dict[Path, str]:
    """Returns every generated file: its path from the project's root and its text."""
    pages = {name: render() for name, render in PAGES.items()}
    # The chart is made of the other manifests, in their newest form.
    pages |= chart.files(ROOT, pages)
    others = samples.generate(root) | testruns.generate(root)
    return {Path(name): text for name, text in pages.items()} | others


def outdated(root: Path) -> list[str]:
    """Returns the generated files under `root` that differ from what the code generates now."""
    return [str(path) for path, text in generated(root).items() if _text(root / path) != text]


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def write(root: Path) -> None:
    for path, text in generated(root).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a file is out of date")
    if not parser.parse_args().check:
        write(ROOT)
        return 0
    names = outdated(ROOT)
    for name in names:
        print(f"{name} is out of date: run `make generate`", file=sys.stderr)
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
