"""The preconditions of each page.

A page that is not listed requires a cluster with the kinds, a controller, the built-in runtimes and two nodes, and no
job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from structlog.processors import JSONRenderer

_SAMPLES = "manifests/samples"
_EXAMPLE = f"{_SAMPLES}/example-job.yaml"
_STANDALONE = "manifests/overlays/standalone"
_TORCH = f"{_SAMPLES}/trainjob-torch.yaml"


@dataclass(frozen=True, slots=True)
class Page:
    """`given` are manifests or folders that were applied, `replaced` has the values for the reader's placeholders.

    `log` is the log of every pod; the replicas of `fails_once` have failed once and were restarted.
    """

    given: tuple[str, ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)
    log: str = ""
    fails_once: tuple[str, ...] = ()


# A log line of the programs, by the same renderer.
_LINE_OF_A_SYNC = f"{JSONRenderer()(None, '', {'event': 'synced', 'key': 'default/example-job'})!s}\n"

PAGES: Mapping[str, Page] = {
    "README.md": Page((_EXAMPLE, _TORCH, f"{_SAMPLES}/gang-job.yaml")),
    "docs/autoscaling.md": Page((_STANDALONE,)),
    "docs/kubectl.md": Page(replaced={"--timeout 2h": "--timeout 1s"}, fails_once=("worker-1",)),
    "docs/monitoring.md": Page((_STANDALONE,), log=_LINE_OF_A_SYNC),
    # Unchanged, the command would simulate a hundred jobs ten times.
    "docs/simulator.md": Page(replaced={"--mean-arrival=2m": "--mean-arrival=2m --jobs=6 --seeds=2"}),
    "docs/tfjob.md": Page((_EXAMPLE,)),
    "docs/trainjob.md": Page(replaced={" NAME": " first"}),
    "docs/troubleshooting.md": Page((_EXAMPLE,), {" train": " example-job"}),
    "docs/training-metrics.md": Page((_TORCH,), {" NAME": " trainjob-torch"}),
}
NOTHING_SPECIAL = Page()


def page_of(path: str) -> Page:
    return PAGES.get(path, NOTHING_SPECIAL)
