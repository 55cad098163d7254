"""Whole models: convert, look, compute each weight once, bake."""

from oni.models.bake_state_dict import bake_state_dict

__all__ = ["bake_state_dict"]
