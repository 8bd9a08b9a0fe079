"""`tfjob-controller simulate`: simulates jobs under several scheduling policies.

Queue order, placement and autoscaling are those of `scheduling`; the import contracts in setup.cfg keep rules of its
own out of the simulator, except kube-scheduler's as a baseline (`podscheduling.py`). The package may import
`scheduling` and the layers below it, and `flags`.
Start with `simulation.py` (one run, and many runs over seeds), then `gangscheduling.py`.
"""
