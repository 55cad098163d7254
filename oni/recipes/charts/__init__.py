"""A chart is data; two drawers draw it."""
