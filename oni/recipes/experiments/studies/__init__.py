"""Studies of our own: questions that the paper does not ask."""
