"""Demos: `python -m demo SCENE` plays a scene on a real cluster, shows each step, and checks what it has seen."""
