"""`make demo`: runs the example job on a real cluster and shows its progress."""
