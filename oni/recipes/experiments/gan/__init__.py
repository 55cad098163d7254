"""GANs on CIFAR-10, with ONI or spectral normalisation in the discriminator."""
