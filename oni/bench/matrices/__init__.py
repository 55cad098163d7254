"""Weights that are as orthogonal as was asked for."""
