"""Settings of the C library's memory allocation by threads."""

from __future__ import annotations

import ctypes

# The constants of malloc.h.
_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3
_HEAPS = 2
# The C library's own default, which it raises with the first such block that is freed unless it is set.
_LARGE_BYTES = 128 * 1024


def share_heaps() -> bool:
    """Make all threads allocate from two heaps of the C library. Call it before any thread starts.

    glibc gives each thread a heap of its own, up to eight for each core, and each keeps the most memory that it has
    ever used: with 60 threads the resident set grows for hours. The interpreter's lock lets one thread allocate at a
    time anyway.

    Large blocks are mapped one by one and returned to the system when they are freed. Otherwise glibc takes them from
    the heaps after the first one was freed. uvloop reserves 256 KiB for each TLS connection: after 12,000 hostile
    connections, 384 MiB of heap remained instead of 86 MiB, nearly all of it free, and 215 to 240 MiB were
    resident instead of 135 MiB. Returns False for a C library without these settings.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(_M_ARENA_MAX, _HEAPS) and mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES))
    except (AttributeError, OSError):
        return False
