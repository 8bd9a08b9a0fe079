"""`tfjob-controller extender` beside a control plane; it can be killed and restarted on the same ports.

with ports.reserve(2) as (port, probes_port):
extender = extender_beside(plane, port, probes_port, "--bind-timeout=6s")
extender.start()
extender.wait_ready()
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from localcluster.controlplane import ControlPlane
from localcluster.ourprogram import EXTENDER, PROBES, OurProgram


def extender_beside(
    plane: ControlPlane,
    port: int,
    probes_port: int,
    *flags: str,
    kubeconfig: Path | None = None,
    replica: str = "",
    env: Mapping[str, str] | None = None,
    more_served: Mapping[str, int] | None = None,
) -> OurProgram:
    """Returns an extender. `kubeconfig` replaces that of the control plane; `more_served` are further servers."""
    return OurProgram(
        "extender",
        kubeconfig or plane.kubeconfig,
        {EXTENDER: port, PROBES: probes_port, **(more_served or {})},
        "--qps=0",
        *flags,
        log=plane.logs / (f"extender-{replica}.log" if replica else "extender.log"),
        mark=plane.folder,
        replica=replica,
        env=env,
    )
