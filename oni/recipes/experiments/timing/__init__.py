"""What orthogonalisation adds to a convolution."""
