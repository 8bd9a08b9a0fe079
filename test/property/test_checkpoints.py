"""A save that is killed leaves the old checkpoint or the new one whole."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.checkpoints import KilledError, MortalStore, restore, resumed, save, write
from helpers.examples import examples
from tfjob_controller.storage.checkpoints.localstore import LocalStore

NAMES = st.sampled_from(["a", "b/c", "b/d e", "weights.bin", "%"])
CONTENTS = st.dictionaries(NAMES, st.binary(max_size=40), min_size=1)


@given(st.lists(st.tuples(CONTENTS, st.integers(0, 25)), min_size=1, max_size=3), st.integers(1, 2))
@settings(max_examples=examples(200), deadline=None)
def test_a_killed_save_leaves_the_old_checkpoint_or_the_new_one_whole(
    saves: list[tuple[dict[str, bytes], int]], keep: int
) -> None:
    """Each save is killed at any operation of the storage, also within a file, or ends by itself."""
    with tempfile.TemporaryDirectory() as root:
        store, work = LocalStore(f"{root}/store"), Path(root, "work")
        newest: dict[str, bytes] | None = None
        for number, (files, operations) in enumerate(saves):
            name = f"c-{number}"
            write(work / name, files)
            has_ended = True
            try:
                save(MortalStore(store, operations), work, name, keep=keep)
            except KilledError:
                has_ended = False
            found = restore(store, Path(root, f"restored-{number}"))
            content = resumed(Path(root, f"restored-{number}"))
            assert found.skipped == ()
            assert content == files or (not has_ended and content == newest)
            newest = content


@given(st.lists(CONTENTS, min_size=2, max_size=4), st.integers(1, 2))
@settings(max_examples=examples(50), deadline=None)
def test_what_is_kept_is_the_newest_and_nothing_else_is_left(saves: list[dict[str, bytes]], keep: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        store, work = LocalStore(f"{root}/store"), Path(root, "work")
        for number, files in enumerate(saves):
            write(work / f"c-{number}", files)
            save(store, work, f"c-{number}", keep=keep)
        left = {file.name.split("/")[1] for file in store.listing("data/")}
        assert left == {f"c-{number}" for number in range(len(saves))[-keep:]}
        assert len(store.listing("manifests/")) == min(keep, len(saves))
