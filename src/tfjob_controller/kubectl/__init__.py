"""`kubectl tfjob`: what a user asks of the jobs of a cluster, and does with them, with the user's own rights."""
