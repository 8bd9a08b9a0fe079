"""Runs jobs for an hour and checks that controller and gang scheduler do not grow: `make soak`."""
