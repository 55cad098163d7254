"""The table of medians in the guide to GANs."""

import re
from pathlib import Path

import pytest
import torch

import oni

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "gans.md"
ROW = re.compile(r"^\| (\d+) x (\d+) \| ([\d. |]+) \|$", re.MULTILINE)
TEXT = GUIDE.read_text()
ROWS = [(int(n), int(d), [float(cell) for cell in cells.split(" | ")]) for n, d, cells in ROW.findall(TEXT)]


def test_there_are_rows():
    assert len(ROWS) == 4


@pytest.mark.parametrize(("n", "d", "printed"), ROWS, ids=lambda value: str(value))
def test_medians(n, d, printed):
    torch.manual_seed(1)
    Z = torch.randn(n, d)
    sigma = oni.spectrum(Z)
    medians = [sigma.median() / sigma.max(), *(oni.spectrum(oni.orthogonalize(Z, T)).median() for T in (2, 3, 5))]
    # The printed numbers are means over 24 draws, whose standard deviations are 0.013 and less: three of these.
    assert [float(median) for median in medians] == pytest.approx(printed, abs=0.04)
