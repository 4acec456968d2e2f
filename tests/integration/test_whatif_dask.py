"""A sweep on a real cluster of worker processes, one of which is killed in the middle."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from trainplan.sweep_points import points_of
from trainplan.whatif import CaseText, How, Store, what_if
from trainplan_models.base import InputError

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("default")

TEXT = """
name: sweep
deadline: 30 days
tasks:
  - name: train
    kind: sft
    model: llama-2-7b
    tokens: 2B tokens
    sequence_length: 4096
    global_batch: 1M tokens
resources: {accelerators: [A100-SXM-80GB], clouds: [aws], billing: [on-demand], max_nodes: 4}
"""
POINTS = points_of(["budget=1000 USD..4000 USD/100 USD", "deadline=3 hours,5 days"])


def test_no_point_is_lost_when_a_worker_is_killed(tmp_path: Path) -> None:
    here = what_if(CaseText(TEXT), POINTS, how=How(workers=1, promise=False))
    killed: list[int] = []
    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        with distributed.Client(cluster) as client:
            pids = list(client.run(os.getpid).values())
        assert len(set(pids)) == 3 and os.getpid() not in pids

        def kill_one(told: str) -> None:
            if not killed and told.startswith("8 of "):
                os.kill(pids[0], signal.SIGKILL)
                killed.append(pids[0])

        there = what_if(
            CaseText(TEXT),
            POINTS,
            how=How(scheduler=cluster.scheduler_address, promise=False),
            store=Store(tmp_path / "points.jsonl"),
            progress=kill_one,
        )
    assert killed, "the sweep was over before the worker was killed"
    assert len(there) == len(POINTS) == 63
    assert {row.status for row in there} == {"ok", "infeasible"}
    assert [row.model_dump_json() for row in there] == [row.model_dump_json() for row in here]
    assert len(Store(tmp_path / "points.jsonl").rows) == len({row.key for row in there})


def test_a_scheduler_that_does_not_answer_is_bad_input() -> None:
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        what_if(CaseText(TEXT), POINTS[:2], how=How(scheduler="tcp://127.0.0.1:9", promise=False))
