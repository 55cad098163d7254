"""``oni bench processes``: what orthogonalisation adds where several processes train together."""
