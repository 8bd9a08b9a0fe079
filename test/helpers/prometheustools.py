"""Prometheus and promtool for tests; whoever cannot have them is told so."""

from __future__ import annotations

import functools

import pytest

from localcluster import prometheus
from localcluster.errors import LocalClusterError


@functools.cache
def tools() -> prometheus.Tools:
    """Both programs. Where they cannot be had the test is skipped, which CI does not let pass."""
    try:
        return prometheus.ensure()
    except LocalClusterError as error:
        pytest.skip(str(error))
