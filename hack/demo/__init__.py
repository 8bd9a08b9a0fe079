"""`make demo`: the example job on a real cluster, shown as it happens."""
