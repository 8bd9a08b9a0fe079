"""Requests to a node autoscaler: gangs that lack capacity ask for nodes by ProvisioningRequest."""
