"""The two tables of the README: beside other libraries, and what holds of the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from oni.recipes.experiments.experiment import Comparison
from oni.recipes.experiments.table_formats import format_markdown
from website.bench import find_case, find_contender, read_bench, show, training_cost
from website.measured import find_claim, number

__all__ = ["HEADLINES"]

WEIGHT = "256x2304"
NETWORK = "dcgan-b64"


@dataclass(frozen=True)
class Peer:
    """A library or function of others, and under which names `oni bench` measures it, if it does."""

    name: str
    does: str
    does_not: str
    matrix: tuple[str, ...] = ()
    """Of several, the fastest counts."""
    model: str = ""


PEERS = (
    Peer(
        "oni",
        "singular values of the reshaped weight pushed towards 1, as far as asked; whole models in one line; "
        "plain checkpoints",
        "no convolution that is orthogonal as an operator",
        ("oni T=5",),
        "oni T=2",
    ),
    Peer(
        "`torch` `orthogonal`",
        "exactly orthogonal, by Cayley map, matrix exponential or Householder reflections",
        "nothing between free and orthogonal; of a convolution it takes each k x k kernel for a matrix",
        ("torch cayley", "torch matrix_exp", "torch householder"),
        "torch orthogonal",
    ),
    Peer(
        "`torch` `spectral_norm`",
        "largest singular value near 1, by a power iteration",
        "leaves the other singular values in proportion, so small ones stay small",
        model="spectral norm",
    ),
    Peer(
        "geotorch",
        "exactly or almost orthogonal (within a radius), and a dozen other manifolds",
        "of a convolution it takes each k x k kernel for a matrix; no conversion of models",
        ("geotorch",),
    ),
    Peer(
        "orthogonium",
        "convolutions that are orthogonal as operators (AOC, SOC), 1-Lipschitz residual blocks",
        "layers of its own instead of yours; all or nothing",
        ("orthogonium",),
    ),
    Peer(
        "deel-torchlip",
        "1-Lipschitz networks: power iteration and Björck's iteration (which is Newton's) to the end, divided by a "
        "bound of the convolution",
        "layers of its own; iterates to a tolerance, not a chosen number of steps",
        ("deel-torchlip",),
    ),
    Peer(
        "the authors' code",
        "the same map as `oni`, for the paper's ImageNet and GAN networks",
        "works on the long side of tall weights; computes each weight anew at every use, in evaluation too; no plain "
        "checkpoint",
        ("authors T=5",),
        "authors T=2",
    ),
)


def peers(results: Path) -> str:
    """What each library does, does not do, and costs."""
    matrix = find_case(read_bench(results, "matrices"), WEIGHT)
    model = find_case(read_bench(results, "models"), NETWORK)
    rows = []
    for peer in PEERS:
        contenders = [contender for name in peer.matrix if (contender := find_contender(matrix, name)) is not None]
        times = [contender["milliseconds"]["median"] for contender in contenders if contender["milliseconds"]]
        notes = [contender["note"] for contender in contenders]
        weight = f"{show(min(times))} ms" if times else "; ".join(notes) or "not measured"
        step = (training_cost(model, peer.model) if peer.model else "") or "not measured"
        rows.append([peer.name, peer.does, peer.does_not, weight, step])
    columns = ["", "does", "does not", "one weight, 256 x 2304", "GAN step"]
    return format_markdown(Comparison(columns, rows)).rstrip()


@dataclass(frozen=True)
class Headline:
    """A claim of the paper that a reader asks for first."""

    id: str
    claim: str
    """How the claim begins in ``results.json``."""
    paper: str
    ours: str
    """With ``{row | column}`` for a number of the experiment's table; if empty, what was measured for the claim."""
    words: str = ""
    """The claim for a reader who does not have the experiment before him; otherwise the claim itself."""


CLAIMS = (
    Headline(
        "fig1", "More steps bring every singular value nearer to 1", "drawn",
        "smallest of a 64 x 256 Gaussian after 0, 2, 5 steps: {0 | smallest}, {2 | smallest}, {5 | smallest}",
    ),
    Headline(
        "fig2", "Algorithm 1 as printed is numerically stable in float32 through 10 steps", "\"stable\"", "",
    ),
    Headline(
        "fig5", "ONI ends with the lowest training error", "drawn",
        "{10 layers, ONI | train, end} % against {10 layers, plain | train, end} and "
        "{10 layers, OrthInit | train, end} %",
        "10-layer MLP: ONI ends with a lower training error than plain and OrthInit",
    ),
    Headline(
        "fig6", "In 20 layers neither ONI nor OLM converges without it", "drawn",
        "training error {20 layers, ONI-NS | train, end} %",
        "20-layer MLP: neither ONI nor OLM trains without the factor sqrt 2",
    ),
    Headline(
        "fig6", "ONI performs nearly as OLM", "drawn",
        "20 layers: test error {20 layers, ONI | test, end} against {20 layers, OLM | test, end} %; from an "
        "orthogonal Z, not centred, {20 layers, ONI, Z orthogonal, not centred | test, end} %",
        "20-layer MLP: ONI performs nearly as the exact OLM",
    ),
    Headline(
        "fig7a", "Too many steps make it worse", "drawn",
        "6-layer MLP, test error with 3, 5, 7 steps: {6 layers, ONI, T = 3 | test, end}, "
        "{6 layers, ONI, T = 5 | test, end}, {6 layers, ONI, T = 7 | test, end} %",
    ),
    Headline(
        "table1", "On the first network, also in short training: ONI and OLM-sqrt2 have the lowest",
        "ONI 9.95, OLM 10.15, WN 11.19, plain 11.34 %",
        "after 624 steps: ONI {g2k1, ONI | ours}, OLM {g2k1, OLM-sqrt2 | ours}, WN {g2k1, WN | ours}, plain "
        "{g2k1, plain | ours} %",
        "VGG-style network on CIFAR-10: ONI and OLM x sqrt 2 have the lowest test errors, also in short training",
    ),
    Headline(
        "table2", "ONI trains Res-110 without normalisation at a learning rate of 0.1", "trains",
        "diverges; at 0.01 it trains: training error {resnet110, ONI at 0.01, first 312 steps | train} "
        "% after 312 steps, batch norm {resnet110, batch norm at 0.01, first 312 steps | train} % (at 0.1 "
        "{resnet110, batch norm at 0.1, first 312 steps | train} %)",
        "110-layer residual network without normalisation: ONI trains at a learning rate of 0.1",
    ),
    Headline(
        "table3", "Also in short training on few classes: ONI has the lowest top-1 error",
        "ONI 26.31, OrthReg 27.22, WN 27.33, plain 27.47 %",
        "20 classes, an eighth of the width, 1,170 steps: ONI {ONI | last, top-1}, WN {WN | last, top-1}, plain "
        "{plain | last, top-1}, OrthReg {OrthReg | last, top-1}; batch norm "
        "{batch norm (not in the paper) | last, top-1} %",
        "VGG-16 on ImageNet: ONI has the lowest top-1 error of five methods, also in short training",
    ),
    Headline(
        "table4", "Also in short training on few classes: without BN, ONI lowers the test error",
        "33.84 to 31.17 %",
        "20 classes, 936 steps: {ResNet w/o BN, plain | last, test} to {ResNet w/o BN, ONI | last, test} %; with BN "
        "{ResNet, plain | last, test} % (each at the better of two rates)",
        "ResNet-18 without batch normalisation on ImageNet: ONI lowers the test error, also in short training",
    ),
    Headline(
        "fig8a", "T = 2 is better than SN in the beginning of training", "FID 20.75, SN 23.31",
        "a quarter of the width, 1,600 of 156,200 updates: KID x 1000 {ONI, T = 2 | KID x 1000}, with T = 1 "
        "{ONI, T = 1 | KID x 1000}, with T = 5 {ONI, T = 5 | KID x 1000}; SN {SN | KID x 1000}",
        "DCGAN on CIFAR-10: 2 steps give better images than spectral normalisation, already early in training",
    ),
    Headline(
        "fig8b", "ONI is better than SN in all six settings in the beginning of training", "drawn",
        "a quarter of the width, 800 updates, one seed, KID x 1000 of SN and ONI with 2 steps: "
        "A {SN, setting A | KID x 1000}, {ONI, T = 2, setting A | KID x 1000}; "
        "B {SN, setting B | KID x 1000}, {ONI, T = 2, setting B | KID x 1000}; "
        "C {SN, setting C | KID x 1000}, {ONI, T = 2, setting C | KID x 1000}; "
        "D {SN, setting D | KID x 1000}, {ONI, T = 2, setting D | KID x 1000}; "
        "E {SN, setting E | KID x 1000}, {ONI, T = 2, setting E | KID x 1000}; "
        "F {SN, setting F | KID x 1000}, {ONI, T = 2, setting F | KID x 1000}",
        "DCGAN with six settings of Adam: 2 steps give better images than spectral normalisation in all, also early",
    ),
    Headline(
        "theorem2", "sqrt 2 keeps it with Algorithm 2", "isometric", "",
        "sqrt 2 keeps the signal through ReLU layers whose weights are centred",
    ),
)  # fmt: skip


def claims(results: Path) -> str:
    """The claims, what the paper prints of them, what was measured, and the verdict."""
    rows = []
    for headline in CLAIMS:
        found = find_claim(results, headline.id, headline.claim)
        verdict = found["verdict"] if found["verdict"] == "held" else f"**{found['verdict']}**"
        link = f"[{headline.id}](docs/reproduction/{headline.id}.md)"
        words = headline.words or found["text"]
        rows.append([f"{words} ({link})", headline.paper, fill_numbers(results, headline) or found["detail"], verdict])
    return format_markdown(Comparison(["claim", "paper", "ours", "verdict"], rows)).rstrip()


def fill_numbers(results: Path, headline: Headline) -> str:
    """The text with its numbers."""
    pieces = headline.ours.split("{")
    text = pieces[0]
    for piece in pieces[1:]:
        cell, rest = piece.split("}", 1)
        row, column = cell.split(" | ")
        text += number(results, headline.id, row, column) + rest
    return text


HEADLINES: Mapping[str, Callable[..., str]] = {"peers": peers, "claims": claims}
