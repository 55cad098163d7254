"""The engine: it trains a task step by step, and knows named metrics and nothing else."""
