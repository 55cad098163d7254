"""The paper's experiments. Needs the ``recipes`` extra; nothing else of ``oni`` imports it."""
