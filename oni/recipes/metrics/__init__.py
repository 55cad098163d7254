"""How good generated images are: distances between features of real and of generated ones."""
