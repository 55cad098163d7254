"""The mathematics: tensor in, tensor out."""
