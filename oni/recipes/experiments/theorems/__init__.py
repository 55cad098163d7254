"""What orthogonal weights do to signals, and what the theorems say."""
