"""`make chaos-checkpoint`: see `lab.checkpoints.__main__`; what must hold is in `lab.checkpoints.auditor`."""
