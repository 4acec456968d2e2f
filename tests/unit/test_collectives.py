from __future__ import annotations

import numpy as np
import pytest

from trainplan_models.collectives import Links, all_reduce_s, all_to_all_s, gather_s, local_members, send_s

LINKS = Links(
    scaleup_bytes_per_s=400e9,
    scaleup_latency_s=1e-6,
    scaleout_bytes_per_s=40e9,
    scaleout_latency_s=10e-6,
    domain=8,
)
GB = 1e9


def at(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(values, dtype=float)


def test_members_in_a_domain_follow_the_stride() -> None:
    assert list(local_members(at(64, 64, 64, 4), at(1, 2, 8, 1), 8)) == [8, 4, 1, 4]


def test_gather_inside_a_domain_moves_all_but_the_own_share() -> None:
    time = float(gather_s(at(8 * GB), at(8), at(1), LINKS)[0])
    assert time == pytest.approx(8 * GB * 7 / 8 / 400e9, rel=0.01)


def test_gather_between_domains_shares_the_ports_of_a_node() -> None:
    whole = float(gather_s(at(8 * GB), at(16), at(1), LINKS)[0])
    alone = float(gather_s(at(8 * GB), at(16), at(8), LINKS)[0])
    assert whole == pytest.approx(max(8 * GB * 0.5 / (40e9 * 8), 8 * GB * 7 / 8 / 400e9), rel=0.01)
    assert alone == pytest.approx(8 * GB * 15 / 16 / 40e9, rel=0.01)


def test_a_group_of_one_takes_no_time() -> None:
    for collective in (gather_s, all_reduce_s, all_to_all_s):
        assert float(collective(at(GB), at(1), at(1), LINKS)[0]) == 0.0


def test_small_messages_cost_latency_that_grows_with_the_ring() -> None:
    near, far = gather_s(at(8, 8), at(16, 1024), at(1, 1), LINKS)
    assert far > 30 * near > 0
    assert float(gather_s(at(8), at(1024), at(1), LINKS, 10.0)[0]) == pytest.approx(10 * far, rel=1e-3)


def test_trees_make_all_reduce_latency_grow_slowly() -> None:
    near, far = all_reduce_s(at(8, 8), at(16, 1024), at(1, 1), LINKS)
    assert near < far < 10 * near


def test_all_to_all_between_domains_is_bound_by_the_ports() -> None:
    inside, across = all_to_all_s(at(GB, GB), at(8, 64), at(1, 1), LINKS)
    assert inside == pytest.approx(GB * 7 / 8 / 400e9, rel=0.01)
    assert across == pytest.approx(GB * 56 / 64 / 40e9, rel=0.01)


def test_sends_use_the_links_that_the_distance_asks_for() -> None:
    near, far = send_s(at(GB, GB), at(4, 8), LINKS)
    assert far == pytest.approx(10 * near, rel=0.01)
