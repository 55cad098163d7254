"""Any weight file, read safely: what is in it, its spectra, and baking."""
