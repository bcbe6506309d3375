"""video/ — from a clip to the few frames that a model is shown. Knows clips, nothing else."""
