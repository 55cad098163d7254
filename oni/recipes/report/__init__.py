"""One HTML page of experiments and runs, and the page of the documentation."""
