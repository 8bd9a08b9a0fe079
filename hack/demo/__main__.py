"""Plays one of the scenes: `python -m demo [SCENE] [--keep] [--image IMAGE]`; `make demo-SCENE` calls it.

Exit code 0 only if all checks of the scene hold. Ctrl-C stops everything that the demo has started.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from demo import autoscale, dashboard, elastic, example, gang, preemption, trainjob
from demo.play import perform

# By the word after `demo-` in the target of make.
SCENES = {
    "": example.SCENE,
    "autoscale": autoscale.SCENE,
    "dashboard": dashboard.SCENE,
    "elastic": elastic.SCENE,
    "gang": gang.SCENE,
    "preemption": preemption.SCENE,
    "trainjob": trainjob.SCENE,
}


def main(arguments: Sequence[str]) -> int:
    """Plays the scene that the first argument names, by default that of `make demo`; returns the exit code."""
    name = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    if name not in SCENES:
        raise SystemExit(f"there is no scene {name}: there are {', '.join(filter(None, SCENES))}")
    return perform(SCENES[name], arguments[1:] if name else arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
