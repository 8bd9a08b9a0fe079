"""What this project takes from others, and what its tree must not hold: `python -m supplychain`."""
