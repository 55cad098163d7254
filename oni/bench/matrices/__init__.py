"""Single weights and batches of them."""
