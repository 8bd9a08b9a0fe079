"""Benchmarks: `python -m bench.<name>`. Figures as JSON lines on standard output, progress on standard error."""
