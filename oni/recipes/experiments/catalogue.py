"""What ``oni list`` prints: id, title and presets of every experiment.

Written by ``python -m oni.recipes.experiments.listing``.
"""

from __future__ import annotations

__all__ = ["CATALOGUE"]

CATALOGUE = {
    "demo": ("How many images is a network sure of?", "smoke laptop"),
    "practice": ("ONI compared with common practice, in 10, 20 and 50 layers", "smoke laptop full"),
    "certified": ("Certified networks: images that no small perturbation moves to another class", "smoke laptop full"),
    "conditioning": ("Condition numbers in training, and sigma_min=0.9 against 5 steps", "smoke laptop full"),
    "fig1": ("Singular values against the number of steps", "smoke laptop paper"),
    "fig2": ("Convergence of Algorithm 1", "smoke laptop paper"),
    "fig3": ("Centring and compact spectral bounding speed up the iteration", "smoke laptop paper"),
    "fig4": ("Rows and columns by one iteration", "smoke laptop paper"),
    "fig5": ("Maintaining orthogonality: plain, OrthInit and ONI in a 10-layer MLP", "smoke laptop full paper"),
    "fig6": ("Effects of scaling by sqrt 2: OLM and ONI in 6 and 20 layers", "smoke laptop full paper"),
    "fig7a": ("Effects of the number of steps: ONI in a 6-layer MLP", "smoke laptop full paper"),
    "fig7b": ("Effects of the number of steps: ONI in a VGG-style network", "smoke laptop full paper"),
    "fig7c": ("Effects of the number of steps: ONI in ResNet-18 without BN, ImageNet", "smoke laptop full paper"),
    "fig8a": ("DCGAN: spectral normalisation and ONI of 0 to 5 steps", "smoke laptop full paper"),
    "fig8b": ("DCGAN: six settings of the optimiser", "smoke laptop full paper"),
    "fig9": ("ResNet GAN: non-saturating and hinge loss", "smoke laptop full paper"),
    "table1": ("Seven methods on VGG-style networks, CIFAR-10", "smoke laptop full paper"),
    "table2": ("A residual network without batch normalisation, CIFAR-10", "smoke laptop full paper"),
    "table3": ("Five methods on VGG-16, ImageNet", "smoke laptop full paper"),
    "table4": ("ResNet-18 without BN, with BN, and with BN after the ReLU, ImageNet", "smoke laptop full paper"),
    "table5": ("ResNet-50 and ResNet-101 with and without ONI, ImageNet", "smoke laptop full paper"),
    "theorem1": ("What orthogonal weights preserve of a signal", "smoke laptop paper"),
    "theorem2": ("Orthogonal weights times sqrt 2 before a ReLU", "smoke laptop paper"),
    "figA1": ("Eigenvalues of W W^T under OLM in groups", "smoke laptop paper"),
    "figA2": ("Activations and gradients, layer by layer, in a 20-layer MLP", "smoke laptop full paper"),
    "figA3": ("Effects of groups: ONI with groups of 16 to 256 rows in a 10-layer MLP", "smoke laptop full paper"),
    "figA4": ("Training errors of seven methods on VGG-style networks", "smoke laptop full paper"),
    "figA5": ("Errors of a residual network without batch normalisation, by epoch", "smoke laptop full paper"),
    "figA6": ("Training with 1 to 7 steps, and the spectra they give", "smoke laptop full paper"),
    "figA7": ("DCGAN: Inception scores of Figure 8", "smoke laptop full paper"),
    "figA8": ("ResNet GAN: Inception scores of Figure 9", "smoke laptop full paper"),
    "figA9": ("DCGAN: images for every number of steps", "smoke laptop full paper"),
    "figA10": ("DCGAN: images for three settings of the optimiser", "smoke laptop full paper"),
    "figA11": ("ResNet GAN: images with both losses", "smoke laptop full paper"),
    "tableA1": ("Wall-clock time of a convolution with ONI", "smoke laptop paper"),
    "tableA2": ("Row and column orthogonality of ONI and of OLM in groups", "smoke laptop paper"),
}
