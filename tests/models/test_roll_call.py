"""What ranks tell each other. How they do it is tested where they share: test_share.py."""

import pytest

from oni.models.roll_call import MESSAGE_BYTES, MOST_WEIGHTS, Place, describe_failures

HERE = Place("forward pass", 3, b"abc")


@pytest.mark.parametrize(
    "place",
    [
        HERE,
        Place("backward of pass", 2**40, b"x" * 32, (1 << MOST_WEIGHTS) - 1, "none left"),
        # As long a failure as is sent, of letters of four bytes each.
        Place("backward of pass", 2**40, b"\0" * 32, 1 << (MOST_WEIGHTS - 1), "\N{MUSICAL SYMBOL G CLEF}" * 400),
    ],
    ids=["short", "all weights", "longest"],
)
def test_a_message_arrives(place):
    message = place.pack()
    assert len(message) == MESSAGE_BYTES
    assert Place.unpack(message) == place


def test_a_long_failure_is_cut():
    place = Place.unpack(HERE._replace(failure="m" * 10**6).pack())
    assert place.failure.startswith("mmm")
    assert len(place.pack()) == MESSAGE_BYTES


@pytest.mark.parametrize(
    ("places", "silent", "message"),
    [
        ({0: HERE, 1: HERE}, {}, ""),
        ({0: HERE}, {2: "has ended", 1: "did not answer"}, "rank 1 did not answer; rank 2 has ended"),
        (
            {1: HERE, 0: HERE._replace(number=4)},
            {},
            "the ranks are not at the same point: rank 0 at forward pass 4,",
        ),
        ({1: HERE, 0: HERE, 2: HERE._replace(digest=b"")}, {}, "rank 2 differs from rank 0 in the weights to compute"),
        # The cause first: a rank that failed makes others look silent, or elsewhere.
        ({0: HERE, 1: Place("share", 0, failure="no memory")}, {2: "has ended"}, "rank 1 failed: no memory"),
    ],
)
def test_what_is_wrong(places, silent, message):
    found = describe_failures(places, silent)
    assert found.startswith(message)
    assert bool(found) == bool(message)
