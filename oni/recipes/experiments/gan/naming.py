"""How the GAN figures call their players and runs, and what they say of their choices."""

from __future__ import annotations

from collections.abc import Sequence

from oni.recipes.experiments.gan.family import GANRun, Player

__all__ = ["NETWORKS", "describe_choices", "describe_run", "make_sweeps", "name_player"]

METHODS = {"sn": "SN", "oni-ns": "ONI"}
LOSSES = {"non-saturating": "non-saturating loss", "hinge": "hinge loss"}
NETWORKS = {"dcgan": "DCGAN", "resnet-gan": "ResNet GAN"}


def name_player(player: Player | GANRun) -> str:
    """The name for legends and tables, without the network and the loss.

    >>> from oni.recipes.experiments.gan.family import oni, spectral
    >>> name_player(oni(2)), name_player(spectral(adam="A")), name_player(oni(3, first_layer="unnormalised"))
    ('ONI, T = 2', 'SN, setting A', 'ONI, T = 3, first layer unnormalised')
    """
    words = [METHODS[player.method]]
    if "steps" in player.options:
        words.append(f"T = {player.options['steps']}")
    if player.adam:
        words.append(f"setting {player.adam}")
    if player.first_layer != "method":
        words.append(f"first layer {player.first_layer}")
    if player.pooling:
        words.append(f"{player.pooling} pooling")
    return ", ".join(words)


def describe_run(run: GANRun) -> str:
    """A run in a few words."""
    return f"{NETWORKS[run.network]}, {name_player(run)}, {LOSSES[run.loss]}, seed {run.seed}"


def make_sweeps(players: Sequence[Player]) -> dict[str, str]:
    """What a figure varies, so that nobody overrides it."""
    names = list(dict.fromkeys(name_player(player) for player in players))
    sweeps = {"method": f"compares {', '.join(names)}", "task": "trains GANs"}
    varied = {
        "method_options.steps": len({str(player.options.get("steps")) for player in players}) > 2,
        "task_options.loss": len({player.loss for player in players}) > 1,
        "task_options.first_layer": len({player.first_layer for player in players}) > 1,
        "network_options.pooling": len({player.pooling for player in players}) > 1,
        **dict.fromkeys(
            ("learning_rate", "momentum", "task_options.beta2", "task_options.n_dis"),
            len({player.adam for player in players}) > 1,
        ),
    }
    return sweeps | {key: f"compares {', '.join(names)}" for key, several in varied.items() if several}


# Texts.

SHARED = (
    "As printed: {network}, z of 128 normal numbers, Adam, one orthogonalisation for each update of the discriminator, "
    "in which there is no learnable scale; rows are centred. As in the authors' code, the last, dense layer of the "
    "discriminator keeps spectral normalisation with ONI too, images are in [-1, 1] and not mirrored. Unlike there, "
    "each update of the discriminator has fresh real images, and the learning rate stays (it falls by 1 % an epoch "
    "there): task_options.reuse_batch=true and task_options.epoch_decay=0.99 do as they do. An epoch is as many "
    "updates of the generator as the images fill batches of 64, as in their code; so 200 epochs are 156,200 updates. "
    "Preset paper is that. Preset full, for a CPU: {full}, batches of 32. laptop and smoke: the embedded Fashion-MNIST "
    "sample with black around it, and smaller still. In narrower networks the learning rate is as much larger as they "
    "are narrower (at width 16, 8e-4 for 2e-4): Adam changes every weight by about the learning rate, so that the "
    "outputs change less where a filter has fewer inputs. "
)


def describe_choices(network: str, full: str, text: str) -> str:
    """What the paper leaves open, with what is said of one figure at the end."""
    return SHARED.format(network=network, full=full) + text
