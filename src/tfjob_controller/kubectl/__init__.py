"""`kubectl tfjob`: what a user asks of the TFJobs of a cluster. Reads only, with the user's own rights."""
