"""An hour of jobs that come and go, and whether what runs them stays as small as it was: `make soak`."""
