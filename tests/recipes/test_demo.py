import io
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from PIL import Image
from rich.console import Console

from oni.newton.bounding import BOUNDS
from oni.recipes import demo
from oni.recipes.style import COLOURS, drawing, save

# Delta after 0, 1, ... steps: the mean over numpy's default_rng(0) to default_rng(4), by an independent
# implementation, to three decimals.
DELTAS = {
    (False, "frobenius"): [7.926, 7.910, 7.876, 7.799, 7.632, 7.276, 6.567, 5.325, 3.600, 1.857, 0.621],
    (True, "frobenius"): [7.875, 7.724, 7.399, 6.745, 5.576, 3.893, 2.113, 0.774, 0.137, 0.006, 0.0],
    (False, "compact"): [7.924, 7.907, 7.869, 7.785, 7.600, 7.210, 6.442, 5.128, 3.369, 1.665, 0.516],
    (True, "compact"): [7.122, 6.232, 4.800, 3.028, 1.422, 0.401, 0.043, 0.001, 0.0, 0.0, 0.0],
}
# Smallest, median and largest eigenvalue of W W^T after one step, for default_rng(0), to two digits.
EIGENVALUES = {
    (False, "frobenius"): [0.00092, 0.0032, 0.993],
    (True, "frobenius"): [0.0092, 0.031, 0.072],
    (False, "compact"): [0.0010, 0.0035, 1.000],
    (True, "compact"): [0.065, 0.21, 0.44],
}


@pytest.fixture(scope="module")
def found() -> list[demo.Trajectory]:
    return demo.trajectories(demo.paper_matrix(0))


@pytest.fixture(scope="module")
def references() -> list[dict[tuple[bool, str], demo.Trajectory]]:
    matrices = [torch.from_numpy(np.random.default_rng(seed).normal(3, 1, (64, 256))) for seed in range(5)]
    return [{(t.center, t.bound): t for t in demo.trajectories(Z)} for Z in matrices]


@pytest.mark.parametrize("variant", DELTAS, ids=str)
def test_delta_of_the_reference_matrices(references, variant):
    mean = torch.stack([reference[variant].delta for reference in references]).mean(0)
    # Half a unit of the third decimal and of the fourth: some of the numbers have been rounded twice.
    torch.testing.assert_close(mean, torch.tensor(DELTAS[variant]).double(), atol=5.5e-4, rtol=0)


@pytest.mark.parametrize("variant", EIGENVALUES, ids=str)
def test_eigenvalues_of_the_reference_matrix(references, variant):
    eigenvalues = references[0][variant].sigma[1] ** 2
    summary = torch.stack([eigenvalues.min(), eigenvalues.quantile(0.5), eigenvalues.max()])
    # Two digits are written down: the rounding of .0010 is 5 %.
    torch.testing.assert_close(summary, torch.tensor(EIGENVALUES[variant]).double(), atol=0, rtol=0.05)


def test_the_demo_shows_the_same_numbers(found):
    assert [(t.center, t.bound) for t in found] == [(c, b) for c in (False, True) for b in BOUNDS]
    for trajectory in found:
        if (trajectory.center, trajectory.bound) in DELTAS:
            # Four standard deviations of the difference: over 100 seeds, delta has one of up to 0.035, and
            # the mean of five seeds therefore one of 0.016.
            expected = torch.tensor(DELTAS[trajectory.center, trajectory.bound]).double()
            torch.testing.assert_close(trajectory.delta, expected, atol=0.15, rtol=0)


def test_every_step_lifts_every_singular_value_and_none_past_1(found):
    for trajectory in found:
        # 1e-12: rounding, in float64.
        assert trajectory.sigma.max() <= 1 + 1e-12
        assert trajectory.sigma.diff(dim=0).min() >= -1e-12
        assert trajectory.delta.diff().max() <= 1e-12


def test_each_bound_is_at_least_as_close_as_the_one_before(found):
    for looser, tighter in zip(found[:2] + found[3:5], found[1:3] + found[4:], strict=True):
        assert (tighter.delta <= looser.delta + 1e-12).all()


def test_steps_until(found):
    deltas = torch.tensor([3.0, 0.5, 0.01])
    trajectory = demo.Trajectory(True, "compact", deltas, torch.ones(3, 2))
    assert [trajectory.steps_until(delta) for delta in (4.0, 0.5, 0.001)] == [0, 2, None]
    assert [t.steps_until(demo.CLOSE) for t in found] == [None, None, None, 9, 6, 5]


def test_seeds():
    torch.testing.assert_close(demo.paper_matrix(7), demo.paper_matrix(7), atol=0, rtol=0)
    assert not torch.equal(demo.paper_matrix(7), demo.paper_matrix(8))
    for seed in (-1, 2**63):
        with pytest.raises(ValueError, match=f"seed .* got {seed}"):
            demo.paper_matrix(seed)


def test_the_number_of_threads_is_given_back():
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), demo.one_thread():
        torch.get_num_threads() / 0
    assert torch.get_num_threads() == before


def shown(found: list[demo.Trajectory], *, ascii_only: bool = False, colour: bool = False) -> str:
    written = io.StringIO()
    system = "truecolor" if colour else None
    terminal = Console(file=written, width=80, force_terminal=colour, color_system=system)
    demo.show(found, terminal, ascii_only=ascii_only)
    return written.getvalue()


@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_tables_hold_the_numbers(found, ascii_only):
    text = shown(found, ascii_only=ascii_only)
    rows = [line.split() for line in text.splitlines()]
    rows = [[word for word in row if word[0].isdigit()] for row in rows if row and row[0].isdigit()]
    sigmas = [found[0].sigma, found[4].sigma]
    steps = range(demo.STEPS + 1)
    assert rows == [[str(t), *(f"{trajectory.delta[t]:.3f}" for trajectory in found)] for t in steps] + [
        [str(t), *(f"{value:.3f}" for s in sigmas for value in (s[t].min(), s[t].median(), s[t].max()))] for t in steps
    ]


def test_output_fits_and_is_as_plain_as_asked(found):
    for ascii_only in (False, True):
        text = shown(found, ascii_only=ascii_only)
        assert max(map(len, text.splitlines())) <= 80
        assert text.isascii() == ascii_only
        assert "\x1b" not in text
    assert "\x1b[" in shown(found, colour=True)


def test_the_sentences_tell_the_measured_numbers(found):
    uncentred, compact, tight = demo.findings(found)
    assert f"starts at {found[0].sigma[0, 0]:.2f}" in uncentred
    assert "after 6 steps; with frobenius after 9" in compact
    assert "after 5" in tight
    # "about where compact is after two steps"
    assert abs(found[5].delta[0] - found[4].delta[2]) < 0.5


def test_the_three_lines_run(capsys):
    with demo.one_thread():
        exec(demo.NEXT, {})
    assert capsys.readouterr().out.startswith("tensor([")
    assert len(demo.NEXT.splitlines()) == 3


def test_the_picture(found, tmp_path):
    settings = dict(matplotlib.rcParams)
    backend = matplotlib.get_backend()
    with drawing():
        png, svg = save(demo.draw(found), tmp_path, "demo")
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    with Image.open(png) as image:
        assert image.size == (2100, 900)
        counts = {colour[:3]: count for count, colour in image.getcolors(2**24)}
    for bound in BOUNDS:
        assert counts[tuple(round(255 * channel) for channel in to_rgb(COLOURS[bound]))] > 1000
    assert ElementTree.parse(svg).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert dict(matplotlib.rcParams) == settings
    assert matplotlib.get_backend() == backend
