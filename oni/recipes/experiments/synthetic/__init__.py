"""Random matrices: what the iteration does to a spectrum."""
