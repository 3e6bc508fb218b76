"""Placement: what is expected of machines and links."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from p2pnode.jobs.pipeline.placement import BYTES_PER_PARAMETER, MachineFacts, ModelFacts, expected, place

# A decoder of width 256 with 7 blocks and windows of 128 tokens, of which 16 take 0.8 s.
MODEL = ModelFacts(blocks=7, block_parameters=800_000, end_parameters=70_000, tensor_bytes=128 * 256)
MACHINES = MachineFacts(8, 0.05, 3 * 800_000 * BYTES_PER_PARAMETER, 100e6 / 8, 0.02, 500_000)


def test_the_link_decides_below_60_megabits_a_second_at_width_256_and_15_at_1024() -> None:
    narrow = expected(MODEL, MACHINES, 7 // 3, 4).break_even_rate * 8 / 1e6
    wide = replace(MODEL, tensor_bytes=4 * MODEL.tensor_bytes)
    slower = replace(MACHINES, seconds_per_sample=16 * MACHINES.seconds_per_sample)
    assert 50 < narrow < 90
    assert abs(expected(wide, slower, 7 // 3, 1).break_even_rate * 8 / 1e6 - narrow / 4) < 1


def test_whole_models_are_faster_where_they_fit_and_impossible_where_they_do_not() -> None:
    divided = place(MODEL, MACHINES)
    assert divided.span == 3 and divided.servers_needed == 3 and not divided.whole_is_faster
    assert divided.whole_samples_per_second is None and "does not fit" in divided.reason
    roomy = place(MODEL, replace(MACHINES, memory_bytes=1e12))
    assert roomy.whole_is_faster and "fits each machine" in roomy.reason


def test_too_few_machines_or_too_little_memory_is_said() -> None:
    assert "3 machines are needed" in place(MODEL, replace(MACHINES, machines=2)).reason
    assert "not even one block" in place(MODEL, replace(MACHINES, memory_bytes=1e6)).reason


@given(st.integers(3, 30), st.floats(0.001, 1.0), st.floats(1e5, 1e9), st.floats(0.0, 0.5))
def test_more_machines_and_better_links_never_hurt(machines: int, seconds: float, rate: float, latency: float) -> None:
    facts = replace(MACHINES, machines=machines, seconds_per_sample=seconds, rate=rate, latency=latency)
    here = place(MODEL, facts)
    assert here.in_flight >= 1 and here.micro_batch >= 1
    assert place(MODEL, replace(facts, machines=machines + 1)).samples_per_second > here.samples_per_second
    assert place(MODEL, replace(facts, rate=2 * rate)).samples_per_second >= here.samples_per_second
    assert here.samples_per_second <= machines / seconds
