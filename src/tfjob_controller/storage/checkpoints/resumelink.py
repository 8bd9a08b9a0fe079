"""The link in the folder of checkpoints to the one from which the program continues.

`restore` sets it before the program starts, and `save` moves it to what is in the storage, because the kubelet may
start the program again without a restore. It is replaced by a rename, so the program sees the old one or the new one.
The program can change the folder at any time: only names in the opened folder are used, and links are not followed.

A module of its own, because the watching process of `save` imports only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import secrets

RESUME_LINK = ".resume-from"
# Names of what is not complete; a restore removes those that others have left.
STAGING = ".tfjob-restore-"


def set_resume_link(root: int, name: str) -> None:
    """Lets the link in the folder of this descriptor name a checkpoint. Raises OSError."""
    if resume_name(root) == name:
        return
    temporary = f"{STAGING}{secrets.token_hex(8)}"
    os.symlink(name, temporary, dir_fd=root)
    try:
        os.rename(temporary, RESUME_LINK, src_dir_fd=root, dst_dir_fd=root)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=root)
        raise


def resume_name(root: int) -> str:
    """What the link names; empty without a link."""
    try:
        return os.readlink(RESUME_LINK, dir_fd=root)
    except OSError:
        return ""
