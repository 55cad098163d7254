"""The three tables of the README: speed, other libraries, and which of the paper's claims hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oni.recipes.experiments.experiment import Comparison
from oni.recipes.experiments.table_formats import format_markdown
from website.bench import find_case, find_contender, is_measured, read_bench, show, training_cost, unless_missing
from website.experiments import describe_effort, read_records
from website.measured import NOT_YET, find_claim, number

__all__ = ["HEADLINES"]

WIDE, SQUARE = "256x2304/gaussian", "512x512/trained"
DEEP = "mlp20-b256"
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
        ("oni exact",),
        "oni T=2",
    ),
    Peer(
        "`torch` `orthogonal`",
        "exactly orthogonal, by the Cayley map (for square weights a good choice), matrix exponential or Householder "
        "reflections; comes with torch",
        "nothing between free and orthogonal; treats each k x k kernel of a convolution as its own matrix",
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
        "Cholesky",
        "exactly orthogonal, by Gram-Schmidt: `oni.baselines.orthogonalize_cholesky`",
        "not the orthogonal matrix closest to Z; needs full rank; nothing between free and orthogonal",
        ("cholesky",),
        "cholesky",
    ),
    Peer(
        "geotorch",
        "exactly or almost orthogonal (within a radius), and a dozen other manifolds",
        "treats each k x k kernel of a convolution as its own matrix; no conversion of models",
        ("geotorch cayley",),
    ),
    Peer(
        "orthogonium",
        "convolutions that are orthogonal as operators (AOC, SOC) or almost orthogonal (AOL), 1-Lipschitz residual "
        "blocks; weights by Björck's iteration of `niters` steps, QR or Cholesky",
        "own layer classes instead of yours",
        ("orthogonium", "orthogonium cholesky", "orthogonium qr"),
    ),
    Peer(
        "deel-torchlip",
        "1-Lipschitz networks: Björck's iteration (the same as Newton's) and a bound on the convolution, in own "
        "layer classes or on your modules (`bjorck_norm`, `lconv_norm`); exports plain modules (`vanilla_export`)",
        "no conversion of whole models; nothing between bounded and orthogonal is certified",
        ("torchlip bjorck_norm",),
    ),
    Peer(
        "POGO, SPEL",
        "optimisers that keep the parameters themselves on the manifold, or next to it: no proxy, nothing to compute "
        "in the forward pass ([POGO](https://github.com/adrianjav/pogo), [SPEL](https://arxiv.org/abs/2601.21487))",
        "replaces the optimiser of those weights; nothing between free and orthogonal",
    ),
    Peer(
        "OFT, POET",
        "orthogonal factors around a weight that stays fixed: a pretrained one "
        "([OFT](https://huggingface.co/docs/peft/main/en/conceptual_guides/oft), in `peft`) or a random one "
        "([POET](https://arxiv.org/abs/2506.08001)), whose singular values are kept",
        "no weight that is orthogonal itself",
    ),
    Peer(
        "the authors' code",
        "the same map as `oni`, for the paper's ImageNet and GAN networks",
        "works on the long side of tall weights; recomputes each weight at every use, also in evaluation; no plain "
        "checkpoint",
        model="authors T=2",
    ),
)


def peers(results: Path) -> str:
    """What each library does, does not do, and costs."""
    matrix = find_case(read_bench(results, "matrices"), WIDE) if is_measured(results, "matrices") else None
    model = find_case(read_bench(results, "models"), NETWORK)
    rows = []
    for peer in PEERS:
        weight = exact_time(matrix, peer.matrix) if matrix is not None and peer.matrix else ""
        step = (training_cost(model, peer.model) if peer.model else "") or "not measured"
        rows.append([peer.name, peer.does, peer.does_not, weight or "not measured", step])
    columns = ["", "does", "does not", "one weight, 256 x 2304, exact", "GAN step"]
    return format_markdown(Comparison(columns, rows)).rstrip()


def exact_time(case: Mapping[str, Any], names: Sequence[str]) -> str:
    """Milliseconds of the fastest of some contenders that is exact; otherwise why there is none."""
    contenders = [contender for name in names if (contender := find_contender(case, name)) is not None]
    times = [
        contender["milliseconds"]["median"]
        for contender in contenders
        if contender["milliseconds"] is not None and "exact" in contender["reaches"]
    ]
    notes = [contender["note"] or "not exact" for contender in contenders]
    return f"{show(min(times))} ms" if times else "; ".join(notes)


def speed(results: Path) -> str:
    """A wide weight, a square one and a whole network, each as orthogonal as was asked for."""
    matrices, models = read_bench(results, "matrices"), read_bench(results, "models")
    names = {WIDE: "256 x 2304, Gaussian", SQUARE: "512 x 512, spectrum as after training"}
    rows = []
    for name, words in names.items():
        case = find_case(matrices, name)
        cells = []
        for asked in case["asked"]:
            other = case["asked"][asked]["fastest_other"]
            pair = [find_contender(case, contender) for contender in (f"oni {asked}", other)]
            times = [show(one["milliseconds"]["median"]) if one and one["milliseconds"] else "-" for one in pair]
            cells.append(f"{times[0]} / {times[1]} ms ({other})")
        rows.append([f"one weight, {words}", *cells])
    deep = find_case(models, DEEP)
    costs = [training_cost(deep, name) or "not measured" for name in ("oni 0.9", "cholesky")]
    rows.append([f"a training step of a {deep['about']}", f"{costs[0]} / {costs[1]} of plain (cholesky)", "", ""])
    columns = ["oni / fastest other", "every singular value at least 0.9", "at least 0.99", "exact"]
    return format_markdown(Comparison(columns, rows)).rstrip()


@dataclass(frozen=True)
class Headline:
    """A claim of the paper that a reader asks for first."""

    id: str
    claim: str
    """How the claim begins in ``results.json``."""
    paper: str
    run: str
    """What was run, and how much less it is than the paper's."""
    ours: str
    """With ``{row | column}`` for a number of the experiment's table; if empty, what was measured for the claim."""
    words: str = ""
    """The claim for a reader who does not have the experiment before him; otherwise the claim itself."""


MLP = "Fashion-MNIST, 10 epochs"
CLAIMS = (
    Headline(
        "fig5", "ONI ends with a lower training error", "drawn", MLP,
        "{10 layers, ONI | train, end} %; plain {10 layers, plain | train, end}, OrthInit "
        "{10 layers, OrthInit | train, end} %",
        "10-layer MLP: ONI ends with a lower training error than plain and OrthInit",
    ),
    Headline(
        "fig6", "In 20 layers neither ONI nor OLM converges without it", "drawn", MLP,
        "training error {20 layers, ONI-NS | train, end} and {20 layers, OLM-NS | train, end} %; OLM with it "
        "{20 layers, OLM | train, end} %",
        "20-layer MLP: neither ONI nor OLM trains without the factor sqrt 2",
    ),
    Headline(
        "fig6", "In 6 layers the scale makes no notable difference: training", "drawn", MLP, "",
        "6-layer MLP: the factor sqrt 2 makes no notable difference to the training error (our threshold: a point)",
    ),
    Headline(
        "fig6", "ONI has nearly the same test error as OLM", "drawn", f"{MLP}, same groups and scale",
        "20 layers: {20 layers, ONI, G = 64, fixed scale | test, end} and {20 layers, OLM | test, end} %; 6 layers: "
        "{6 layers, ONI, G = 64, fixed scale | test, end} and {6 layers, OLM | test, end} %",
        "6 and 20-layer MLP: ONI with 5 steps has nearly the same test error as the exact OLM (within a point)",
    ),
    Headline(
        "fig7a", "5 to 7 steps are nearly equal", "drawn", MLP,
        "test error with 5, 6, 7 steps: {6 layers, ONI, T = 5 | test, end}, {6 layers, ONI, T = 6 | test, end}, "
        "{6 layers, ONI, T = 7 | test, end} %",
        "6-layer MLP: more than 5 steps change little (test errors within a point)",
    ),
    Headline(
        "table1", "ONI and OLM-sqrt2 have the lowest test errors", "ONI 9.95, OLM 10.15, WN 11.19, plain 11.34 %",
        "one of nine networks, 30 of 160 epochs", "",
        "VGG-style networks on CIFAR-10: ONI and OLM x sqrt 2 have the lowest test errors",
    ),
    Headline(
        "table1", "ONI has a lower test error than the plain network", "9.95 and 11.34 %",
        "one of nine networks, 30 of 160 epochs", "",
        "The same network: ONI has a lower test error than the plain network",
    ),
    Headline(
        "fig7b", "Too many steps make it worse", "drawn", "g = 2, k = 1, 30 of 160 epochs", "",
        "VGG-style network (the paper: g = 2, k = 3): too many steps, 7, make it worse",
    ),
    Headline(
        "table2", "ONI trains Res-110 without normalisation", "trains",
        "3 of 160 epochs, started like the released code", "",
        "110-layer residual network without normalisation: ONI trains at a learning rate of 0.1",
    ),
    Headline(
        "table2", "ONI trains Res-110 with scales and biases initialised from data", "trains",
        "3 of 160 epochs, started as the paper's text describes it", "",
        "The same network, started as the text describes it",
    ),
    Headline(
        "fig8a", "T = 2 is better than SN", "FID 20.75, SN 23.31",
        "a quarter of the width at four times the learning rate, batches of 32, 20,000 of 156,200 updates, bf16-mixed",
        "",
        "DCGAN on CIFAR-10: 2 steps give better images than spectral normalisation",
    ),
    Headline(
        "table3", "ONI has the lowest top-1 error", "ONI 26.31, OrthReg 27.22, WN 27.33, plain 27.47 %",
        "20 classes at 64 x 64, an eighth of the width, 1,170 of 1,000,000 steps",
        "{ONI | last, top-1}, WN {WN | last, top-1}, plain {plain | last, top-1} %",
        "VGG-16 on ImageNet: ONI has the lowest error of five methods",
    ),
)  # fmt: skip


def claims(results: Path) -> str:
    """Claims of the paper: what it prints of them, what was run, what was measured, and the verdict."""
    rows = []
    records = read_records(results)
    for headline in CLAIMS:
        if headline.id not in records:
            words = headline.words or headline.claim
            rows.append([f"{words} ({headline.id})", headline.paper, headline.run, NOT_YET, "**not tested**"])
            continue
        found = find_claim(results, headline.id, headline.claim)
        verdict = found["verdict"] if found["verdict"] == "held" else f"**{found['verdict']}**"
        link = f"[{headline.id}](docs/reproduction/{headline.id}.md)"
        words = headline.words or found["text"]
        measured = fill_numbers(results, headline) or found["detail"]
        run = f"{headline.run}; {describe_effort(records[headline.id], found['text'])}"
        rows.append([f"{words} ({link})", headline.paper, run, measured, verdict])
    return format_markdown(Comparison(["claim", "paper", "what was run", "ours", "verdict"], rows)).rstrip()


def fill_numbers(results: Path, headline: Headline) -> str:
    """The text with its numbers."""
    pieces = headline.ours.split("{")
    text = pieces[0]
    for piece in pieces[1:]:
        cell, rest = piece.split("}", 1)
        row, column = cell.split(" | ")
        text += number(results, headline.id, row, column) + rest
    return text


HEADLINES: Mapping[str, Callable[..., str]] = {
    "speed": unless_missing(speed),
    "peers": unless_missing(peers),
    "claims": claims,
}
