"""Fetches datasets and models, and exports models: what `tfjob-controller initialize` and `export` run.

The package knows nothing of Kubernetes and of jobs: it takes flags and variables, and reports by an exit code
and its last line. It may import `flags` and `util` only, and imports the library of a storage service when it is
needed. Start reading with `initializer.py`, then `transfer.py` for a single file.
"""
