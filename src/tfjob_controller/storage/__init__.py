"""Fetches datasets and models, exports models, and saves and restores checkpoints: the commands `tfjob-controller
initialize`, `export` and `checkpoint`.

The package does not depend on Kubernetes or on jobs: it reads flags and variables, and reports its result by the exit
code and its last line. It may import `flags`, `util` and the quantities of `api` only, and imports the library of a
storage service when it is needed. Start reading with `initializer.py`, then `transfer.py` for a single file, and with
`checkpoints/layout.py` for checkpoints.
"""
