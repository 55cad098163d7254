"""A run on disk: its configuration, its folder, the states in its checkpoint, and how it is read again."""
