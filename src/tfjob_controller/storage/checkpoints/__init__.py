"""Saves checkpoints while a program trains, and restores the newest one: `tfjob-controller checkpoint save|restore`.

As all of `storage`, the package does not depend on Kubernetes or on jobs. `save` runs in two processes: the one that
watches the folder (`saver.py`, `watcher.py`) imports little, so that it costs next to nothing while nothing changes,
and a short-lived one (`uploader.py`) imports the library of the storage service. Start reading with `layout.py`.
"""
