"""Concurrency that grows until throughput stops growing, against a server of known capacity in simulated time."""

import heapq

import pytest

from models.concurrency import MOST, START, Pace


class Sim:
    """A server with `slots` that takes a second a call; calls are always waiting (or only `demand` of them)."""

    def __init__(self, slots: int, start: int = START, most: int = MOST, demand: int = 10**9) -> None:
        self.now, self.slots, self.demand = 0.0, slots, demand
        self.pace = Pace(start, most, lambda: self.now)
        self.ends: list[float] = []
        self.free: list[float] = [0.0] * slots
        self.seen: list[int] = []

    def run(self, calls: int) -> None:
        for _ in range(calls):
            while len(self.ends) < min(self.pace.limit, self.demand):
                begin = max(self.now, heapq.heappop(self.free))
                heapq.heappush(self.free, begin + 1.0)
                heapq.heappush(self.ends, begin + 1.0)
                self.pace.began()
            self.now = heapq.heappop(self.ends)
            self.pace.ended()
            self.seen.append(self.pace.limit)


@pytest.mark.parametrize("slots", [1, 8, 64, 200, 700])
def test_it_settles_near_what_the_server_can_do(slots: int) -> None:
    sim = Sim(slots)
    sim.run(40_000)
    typical = sorted(sim.seen[20_000:])[10_000]
    assert typical >= min(slots, START) and (typical >= slots / 1.06 or slots > MOST)
    assert max(sim.seen) <= max(4 * slots, 2 * START)


def test_it_never_exceeds_the_most() -> None:
    sim = Sim(10_000, most=100)
    sim.run(5_000)
    assert max(sim.seen) == 100


def test_it_does_not_grow_where_there_is_nothing_to_send() -> None:
    sim = Sim(1_000, demand=5)
    sim.run(5_000)
    assert set(sim.seen) == {START}


def test_a_burst_of_refusals_halves_once_and_growth_comes_back() -> None:
    sim = Sim(1_000, start=64, most=64)
    sim.run(500)
    for _ in range(50):
        sim.pace.refused()  # in flight: 63
    assert sim.pace.limit == 32
    sim.run(5_000)
    assert sim.pace.limit == 64


def test_refusals_leave_at_least_one() -> None:
    pace = Pace(1)
    pace.began()
    pace.refused()
    assert pace.limit == 1
