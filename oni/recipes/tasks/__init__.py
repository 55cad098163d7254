"""What the engine can train: one file for each kind of task."""
