"""Autoscaling rules: which running gangs shrink for a pending gang, or grow into free capacity.

The rules are pure and keep no state: each call returns all resize requests that should exist now. They try every
plan with the live placement on a what-if view before they request it. The package may import `scheduling`, `api` and
`kube.meta`. Start with `autoscaler.plan_resizes`, then read `victims.py`.
"""
