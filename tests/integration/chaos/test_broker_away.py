"""The broker stops and comes back while a run trains: a run of Service Bus, and a queue file that is locked or gone."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from buses import amqp_broker, connection_string
from conftest import Quiet
from lives import living
from run_checks import check_run, learned, metrics
from small_run import GENERATIONS, PROMPTS, STEPS, WORDS

from callwright.envs.traces import read_traces

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1500)]

VARIABLE = "CHAOS_BUS"
BUS = ("executors.broker=servicebus", f"executors.servicebus_env={VARIABLE}", "executors.lanes=4")
GONE = "was moved away or replaced"
SHORT = ("executors.queue_s=5", "executors.web.timeout_s=5")


def steps_of(run: Path) -> int:
    return len(metrics(run)) if (run / "metrics.jsonl").is_file() else 0


def check(run: Path) -> None:
    check_run(run, steps=STEPS, prompts=PROMPTS, generations=GENERATIONS)


def test_a_run_goes_on_with_a_service_that_came_back(tmp_path: Path) -> None:
    """It keeps nothing of what it held: calls that were on their way are lost, and nothing is learned from them."""
    folder = tmp_path / "life"
    folder.mkdir()
    run = folder / "runs" / "quickstart"
    with amqp_broker() as (bus, port):
        told = {VARIABLE: connection_string(port)}
        words = (*WORDS, *BUS, *SHORT, "grpo.max_infra_share=1.0")
        with living(folder, *words, environment=told) as life:
            life.until(lambda: steps_of(run) >= 1, "the first step")
            bus.kill()
            bus.wait()
            with amqp_broker(port):
                life.well()
    check(run)


def test_a_run_whose_service_stays_away_stops_and_goes_on_where_it_was(quiet: Quiet, tmp_path: Path) -> None:
    folder = tmp_path / "life"
    folder.mkdir()
    run = folder / "runs" / "quickstart"
    with amqp_broker() as (bus, port):
        told = {VARIABLE: connection_string(port)}
        with living(folder, *WORDS, *BUS, *SHORT, environment=told) as life:
            life.until(lambda: steps_of(run) >= 1, "the first step")
            bus.kill()
            assert life.ended() == 1, life.text[-2000:]
        last = life.text.splitlines()[-1]
        assert "through no fault of the policy" in last
        assert "broker failed" in last
        assert f"127.0.0.1:{port}" in last
        with amqp_broker(port), living(folder, "train", str(run), "--resume", name="resumed", environment=told) as life:
            life.well()
    check(run)
    assert learned(run) == quiet.learned


def test_a_queue_file_that_another_holds_for_a_while_changes_nothing(quiet: Quiet, tmp_path: Path) -> None:
    run = hold(tmp_path, ())
    check(run)
    assert learned(run) == quiet.learned


def hold(folder: Path, words: Sequence[str]) -> Path:
    """A run over a queue file that cannot be written for three seconds after its evaluation; its folder."""
    run = folder / "life" / "runs" / "quickstart"
    (folder / "life").mkdir()
    with living(folder / "life", *WORDS, "executors.broker=sqlite", *words) as life:
        life.until((run / "before.json").is_file, "the evaluation before")
        with sqlite3.connect(folder / "life" / "runs" / "queues.db", timeout=60, isolation_level=None) as db:
            db.execute("BEGIN IMMEDIATE")
            time.sleep(3)
            db.execute("ROLLBACK")
        life.well()
    return run


def test_what_a_queue_file_held_goes_with_it_and_the_next_one_serves(tmp_path: Path) -> None:
    folder = tmp_path / "life"
    folder.mkdir()
    run = folder / "runs" / "quickstart"
    shared = ("executors.broker=sqlite", "executors.external=[web]", *SHORT, "grpo.max_infra_share=1.0")
    with living(folder, "worker", "web", *WORDS[1:], *shared, name="web") as worker:
        worker.until(lambda: "takes from" in worker.text, "its start")
        with living(folder, *WORDS, *shared) as life:
            life.until(lambda: steps_of(run) >= 1, "the first step")
            (folder / "old").mkdir()
            for file in (folder / "runs").glob("queues.db*"):
                file.rename(folder / "old" / file.name)
            life.well()
        assert GONE in worker.text
    check(run)
    for trace in read_traces(run, "after-sampled-new_seeds"):
        assert trace["outcome"] != "infra_fault", trace["cause"]
