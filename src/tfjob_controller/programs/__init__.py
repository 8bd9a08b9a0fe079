"""The programs `run` and `extender`: which parts each consists of, and in which order the parts start and stop.

This is the only package that imports the controller, the gang scheduler and telemetry together. Nothing below it knows
that programs exist. Start reading with `manager.py` (the controller) or `gangscheduler.py`.
"""
