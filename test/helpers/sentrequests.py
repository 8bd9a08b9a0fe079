"""What a controller has sent through a `FaultProxy`."""

from __future__ import annotations

from collections.abc import Iterable

from helpers.kubernetesversion import STREAMING_SINCE, is_older_than
from localcluster.faultproxy import Seen

_APART = ("watch=1", "/version", "/events")
# Without streaming lists a cache begins with a list of what the server has cached.
_FIRST_LIST = "limit=500&resourceVersion=0"


def requests(seen: Iterable[Seen]) -> list[str]:
    """Returns the requests for jobs and their children: what fills caches, the version and events are apart."""
    apart = (*_APART, _FIRST_LIST) if is_older_than(STREAMING_SINCE) else _APART
    return [f"{each.method} {each.path}" for each in seen if not any(part in each.path for part in apart)]
