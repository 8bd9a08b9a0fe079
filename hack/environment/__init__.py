"""Makes `.venv` with exactly the locked packages, and the environment of Kubeflow's SDK beside it.

`build` and `pipsettings` use the standard library only, since they run before anything is installed.
"""
