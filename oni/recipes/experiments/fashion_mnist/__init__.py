"""Deep MLPs on Fashion-MNIST."""
