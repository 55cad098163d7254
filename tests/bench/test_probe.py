import dataclasses

import pytest
import torch

from oni.bench.contender import Contender, WeightJob, make_job
from oni.bench.inputs import draw_inputs
from oni.bench.probe import growing_shapes, probe


class Fake:
    """A contender whose call takes as long as we say, by a clock of its own."""

    def __init__(self, *seconds):
        self.seconds = list(seconds)
        self.now = 0.0
        self.calls = []
        self.contender = Contender("fake", self.prepare)

    def clock(self):
        return self.now

    def prepare(self, Z, G):
        leaf = Z.clone().requires_grad_()

        def forward():
            self.calls.append(tuple(Z.shape))
            self.now += self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]
            return [2 * leaf]

        return WeightJob(forward, [leaf], [G])

    def probe(self, shape=(8, 8), patience=5.0, **changed):
        contender = dataclasses.replace(self.contender, **changed)
        return probe(contender, shape, draw_inputs, patience=patience, clock=self.clock)


def test_a_fast_one_is_ready():
    tried = Fake(0.5).probe()
    Z, G = draw_inputs((8, 8))
    assert (tried.word, tried.at_least) == ("", None)
    torch.testing.assert_close(tried.W[0], 2 * Z)
    torch.testing.assert_close(tried.dZ[0], 2 * G)
    torch.testing.assert_close(tried.job.run()[0][0].detach(), 2 * Z)


def test_a_slow_one_is_skipped_with_a_word():
    fake = Fake(12.0)
    tried = fake.probe(patience=5.0)
    assert tried.job is None
    assert (tried.word, tried.at_least) == ("skipped: one call took 12 s", 12.0)
    assert len(fake.calls) == 1


def test_the_threshold_decides():
    assert Fake(1.5).probe(patience=1.0).word == "skipped: one call took 1.5 s"
    assert Fake(1.5).probe(patience=2.0).word == ""


def test_a_slow_first_call_alone_is_forgiven():
    assert Fake(4.0, 0.1).probe(patience=5.0).word == ""
    assert Fake(0.9, 0.1).probe(patience=0.5).word == ""


def test_it_never_gets_as_far_as_minutes():
    # 3 s on half the size make 24 on the whole.
    fake = Fake(0.05, 0.05, 0.05, 0.4, 0.4, 0.4, 3.0, 3.0, 200.0)
    tried = fake.probe(shape=(512, 512))
    assert tried.word == "skipped: 256x256 alone took 3 s"
    assert tried.at_least == pytest.approx(3.0)
    assert max(fake.calls) == (256, 256)


def test_a_call_far_slower_than_half_the_size_foretells_is_tried_again():
    fake = Fake(0.01, 0.01, 0.01, 9.0, 9.0, 0.08)
    assert fake.probe(shape=(128, 128)).word == ""
    assert fake.calls == [(64, 64)] * 3 + [(128, 128)] * 3


def test_a_patient_one_may_take_its_time():
    fake = Fake(60.0)
    assert fake.probe(shape=(256, 256), patient=True).job is not None
    assert fake.calls == [(256, 256)]


def test_shapes_double():
    assert growing_shapes((2048, 512)) == [(256, 64), (512, 128), (1024, 256), (2048, 512)]
    assert growing_shapes((36, 16, 144)) == [(36, 16, 144)]


def failing(Z):
    raise RuntimeError("this shape\n  [is] too " + 50 * "much ")


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (failing, "failed: this shape [is] too much"),
        (lambda Z: torch.linalg.inv(Z * 0), "failed: linalg.inv"),
        (lambda Z: Z / 0, "failed: not finite"),
        (lambda Z: Z @ Z.reshape(-1), "failed: size mismatch"),
        # The value is finite, its gradient is not.
        (lambda Z: (Z * 0).sqrt(), "failed: not finite"),
    ],
)
def test_a_failing_one_gets_a_word(function, word):
    contender = Contender("fake", lambda Z, G: make_job(function, Z, G))
    tried = probe(contender, (3, 4), draw_inputs, patience=5.0)
    assert tried.job is None
    assert tried.word.startswith(word)
    assert "\n" not in tried.word
    assert len(tried.word) < 100


def test_a_bug_is_no_word():
    contender = Contender("fake", lambda Z, G: make_job(lambda Z: Z.no_such_method(), Z, G))
    with pytest.raises(AttributeError):
        probe(contender, (3, 4), draw_inputs, patience=5.0)
