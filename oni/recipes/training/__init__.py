"""The engine: runs, checkpoints, progress; it knows named metrics and nothing else."""
