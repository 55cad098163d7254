"""What writes the documentation from the code and from ``results/``: ``python -m website``, and ``make docs``.

The package ``oni`` knows nothing of it, and no wheel contains it.
"""
