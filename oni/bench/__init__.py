"""``oni bench``: what orthogonalisation costs on this machine, beside every other way to do it, in one run."""
