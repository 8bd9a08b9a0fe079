"""What was seen with programs of other projects: `make interop WITH=kueue` runs test/interop and records it.

The records are in `results/`; `generate.interop` makes the table of docs/interop.md from them. Start at `record`.
"""
