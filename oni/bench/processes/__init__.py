"""``oni bench models --processes N``: what orthogonalisation adds where several processes train together."""
