"""Other forms of the same iteration."""
