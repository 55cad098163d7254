"""The paper's experiments and our own, one file each."""
