"""Prometheus and promtool for tests, which are skipped without them."""

from __future__ import annotations

import functools

import pytest

from localcluster import prometheus
from localcluster.errors import LocalClusterError


@functools.cache
def tools() -> prometheus.Tools:
    """Returns both programs. Skips the test if they cannot be installed; CI does not accept such a skip."""
    try:
        return prometheus.ensure()
    except LocalClusterError as error:
        pytest.skip(str(error))
