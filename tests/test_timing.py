import itertools

import pytest

from oni.timing import SHARES, interleaved, paired_ratio, quartiles, shuffle


class Clock:
    """Time passes only when someone says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def call(self, seconds, log=None, name=""):
        def run():
            self.now += seconds
            if log is not None:
                log.append(name)

        return run


def measured(costs, *, seconds, least_rounds=5):
    clock, log = Clock(), []
    times = {name: {} for name in costs}
    calls = {name: clock.call(cost, log, name) for name, cost in costs.items()}
    done = list(interleaved(calls, times, seconds=seconds, least_rounds=least_rounds, clock=clock))
    return times, log, done


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], (7, 7, 7)),
        ([1.0, 2.0], (1.25, 1.5, 1.75)),
        ([9.0, 1.0, 3.0, 7.0, 5.0], (3, 5, 7)),
        ([1.0, 1.0, 1.0, 1000.0], (1, 1, 250.75)),
    ],
)
def test_quartiles(values, expected):
    assert quartiles(values) == pytest.approx(expected)


def test_a_paired_ratio_is_blind_to_what_slows_a_whole_round():
    noise = [1.0, 8.0, 3.0, 50.0, 1.0, 20.0]
    fast = dict(enumerate(noise))
    slow = {number: 2.5 * seconds for number, seconds in fast.items()}
    assert paired_ratio(slow, fast) == pytest.approx((2.5, 2.5, 2.5))


def test_a_paired_ratio_takes_only_rounds_in_which_both_ran():
    # The ratio of the medians would be 3 / 1.5.
    assert paired_ratio({0: 4.0, 1: 2.0}, {1: 1.0, 2: 1.0, 3: 2.0, 5: 9.0}) == (2, 2, 2)
    assert paired_ratio({0: 4.0}, {1: 1.0}) is None
    assert paired_ratio({}, {}) is None


def test_nobody_always_follows_the_same():
    names = list("abcde")
    orders = [shuffle(names, number) for number in range(60)]
    assert all(sorted(order) == names for order in orders)
    assert orders == [shuffle(names, number) for number in range(60)], "the same in all processes"
    followed = {name: {order[order.index(name) - 1] for order in orders if order[0] != name} for name in names}
    assert all(before == set(names) - {name} for name, before in followed.items())
    assert {order[0] for order in orders} == set(names)


def test_rounds_are_shuffled_until_the_time_is_up():
    times, log, done = measured({"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0, "e": 1.0}, seconds=28, least_rounds=2)
    # A round takes 5 s, and none begins at or after 28 s.
    assert len(log) == 30
    assert [log[i : i + 5] for i in range(0, 30, 5)] == [shuffle(list("abcde"), number) for number in range(6)]
    assert all(taken == dict.fromkeys(range(6), 1.0) for taken in times.values())
    assert done[0] == 0
    assert done == sorted(done)
    assert done[-1] <= 1


def test_there_are_enough_rounds_however_slow():
    times, _, _ = measured({"a": 100.0, "b": 100.0}, seconds=1, least_rounds=5)
    assert [len(taken) for taken in times.values()] == [5, 5]


def test_the_slow_rest_for_the_others():
    costs = {"slow": 10.0, **dict.fromkeys("abcdefgh", 0.125)}
    times, _, done = measured(costs, seconds=100)
    assert list(times["slow"]) == list(range(5))
    assert sum(times["slow"].values()) > SHARES * 100 / len(costs)
    # Its 50 s come on top, so a round of the others, which takes 1 s, has 100 s.
    assert len(times["a"]) == 100
    assert done == sorted(done)


def test_many_slow_ones_leave_the_others_their_rounds():
    costs = {**dict.fromkeys("abcdefgh", 1.0), "fast": 0.01, "faster": 0.005}
    times, _, _ = measured(costs, seconds=10)
    assert {len(times[name]) for name in "abcdefgh"} == {5}
    # Each rests after two tenths of the time, which are 200 and 400 calls.
    assert len(times["fast"]) == pytest.approx(200, abs=1)
    assert len(times["faster"]) == pytest.approx(400, abs=1)


def test_the_rather_slow_rest_before_the_time_is_up():
    costs = {"slow": 3.0, **dict.fromkeys("abcdefghi", 0.1)}
    times, _, _ = measured(costs, seconds=100)
    # 7 rounds are 21 s, more than two tenths; the others have what is left of the 100 s.
    assert len(times["slow"]) == 7
    assert 88 <= len(times["a"]) <= 89


def test_an_interrupted_round_keeps_what_it_has():
    clock, times = Clock(), {"a": {}, "b": {}}

    def interrupted():
        if len(times["b"]) == 1:
            raise KeyboardInterrupt
        clock.now += 1

    with pytest.raises(KeyboardInterrupt):
        list(interleaved({"a": clock.call(1), "b": interrupted}, times, seconds=9, clock=clock))
    done = shuffle("ab", 1).index("b")  # calls before b in the round that was interrupted
    assert times == {"a": dict.fromkeys(range(1 + done), 1.0), "b": {0: 1.0}}


def test_rounds_do_not_end_by_themselves():
    clock, times = Clock(), {"a": {}}
    rounds = interleaved({"a": clock.call(0.001)}, times, seconds=1e9, clock=clock)
    assert len(list(itertools.islice(rounds, 50))) == 50
