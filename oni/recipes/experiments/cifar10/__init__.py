"""Tables 1 and 2 and their figures, on CIFAR-10."""
