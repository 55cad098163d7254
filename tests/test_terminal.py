import math
import os
import pty
import re
import struct
import sys
import termios
from fcntl import ioctl
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oni.terminal import PIPED_WIDTH, console, format_number, printable, shorten_name, terminal_width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("layer.0.weight σ", "layer.0.weight σ"),
        ("\x1b]0;title\x07\x1b[2J", r"\x1b]0;title\x07\x1b[2J"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x9b31m", r"\x9b31m"),  # the one-character form of escape and bracket
        ("left\u202eright\u200b", r"left\u202eright\u200b"),
        ("\udcff", r"\udcff"),  # a byte of a file name that is no UTF-8
        ("\u2028", r"\u2028"),
    ],
)
def test_nothing_that_controls_a_terminal_is_printed(text, shown):
    assert printable(text) == shown
    assert printable(printable(text)) == shown
    printable(text).encode()


def test_every_control_character_is_escaped():
    for character in map(chr, range(0x250)):
        assert re.fullmatch(r"[^\x00-\x1f\x7f-\xa0\xad]+", printable(character))
        assert printable(character, ascii_only=True).isascii()


def test_columns_decide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "97")
    assert console().width == 97


@pytest.mark.parametrize("columns", ["", "0", "-3", "wide"])
def test_columns_that_say_nothing(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    for name in ("__stdin__", "__stdout__", "__stderr__"):
        monkeypatch.setattr(sys, name, None)
    assert terminal_width() == PIPED_WIDTH


@pytest.mark.parametrize("stream", ["__stdin__", "__stdout__", "__stderr__"])
def test_the_terminal_s_own_width_also_where_output_is_piped(monkeypatch, stream):
    monkeypatch.delenv("COLUMNS")
    for name in ("__stdin__", "__stdout__", "__stderr__"):
        monkeypatch.setattr(sys, name, None)
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 143, 0, 0))
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, stream, terminal)
        assert terminal_width() == 143
    os.close(master)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1.0, "1.00"), (9.999, "10.0"), (999.9, "1000"), (9990.0, "9990"), (-0.001234, "-0.00123"), (math.inf, "inf")],
)
def test_three_digits(value, shown):
    assert format_number(value) == shown


@given(
    name=st.text(st.characters(min_codepoint=33, max_codepoint=0x17F), min_size=1, max_size=80), most=st.integers(1, 90)
)
def test_a_shortened_name_is_never_longer(name, most):
    short = shorten_name(name, most)
    assert len(short) <= most
    assert (short == name) == (len(name) <= most)
    assert shorten_name(name, most, ascii_only=True) == (short.replace("…", "~") if "…" not in name else ANY)


def test_names_that_differ_in_a_number_still_do():
    names = [f"model.decoder.layers.{i}.encoder_attention.{leaf}" for i in range(40) for leaf in ("query", "key")]
    short = [shorten_name(name, 30) for name in names]
    assert len(set(short)) == len(names)
