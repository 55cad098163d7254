"""Whole models: convert, look, compute each weight once, bake."""
