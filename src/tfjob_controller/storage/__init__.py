"""Fetches datasets and models, and exports models: the commands `tfjob-controller initialize` and `export`.

The package does not depend on Kubernetes or on jobs: it reads flags and variables, and reports its result by the exit
code and its last line. It may import `flags` and `util` only, and imports the library of a storage service when it is
needed. Start reading with `initializer.py`, then `transfer.py` for a single file.
"""
