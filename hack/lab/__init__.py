"""The laboratory: runs the programs under faults, for a long time and under attack, while auditors watch.

Each command is a module or package here: `lab.chaos`, `lab.gangs`, `lab.nodes`, `lab.checkpoints`, `lab.soak` and
`lab.attack`. Start reading in one of them, then in `lab.stage` and `lab.programs`.
"""
