"""Looking at weights and models: how orthogonal they are, and what that does."""
