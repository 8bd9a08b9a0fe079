"""Runs jobs with sidecars and probes on real nodes during faults, with an auditor: see `chaos.nodes.__main__`."""
