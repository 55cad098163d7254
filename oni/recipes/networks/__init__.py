"""The paper's networks, as plain torch modules: methods are put on them from outside."""
