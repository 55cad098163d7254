"""Data sets, in memory as bytes."""
