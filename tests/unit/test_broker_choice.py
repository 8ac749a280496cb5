"""Which broker a config without ``executors.broker`` means."""

from __future__ import annotations

import pytest

from callwright.scripts.common import shared_settings
from callwright.training.config import load_config
from callwright.training.executor_settings import executor_settings

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("words", "of_the_run", "of_a_worker"),
    [
        ([], "memory", "sqlite"),
        (["executors.external=[code]"], "sqlite", "sqlite"),
        (["executors.broker=sqlite"], "sqlite", "sqlite"),
        (["executors.broker=servicebus"], "servicebus", "servicebus"),
    ],
)
def test_a_second_process_finds_the_queues_of_the_run(words: list[str], of_the_run: str, of_a_worker: str) -> None:
    config = load_config("quickstart", words)
    assert executor_settings(config, ("web", "code")).broker == of_the_run
    assert shared_settings(config, ("web", "code")).broker == of_a_worker
