"""How many rollouts run at once. Imports without torch, so that a layout can be told without any of it."""

from __future__ import annotations

from callwright.envs.executors.registry import TOOLS
from callwright.training.config import Config

IN_FLIGHT_PER_ROW = 4  # rollouts at once per row of the engine: while some wait for tools, others decode


def at_once(config: Config, most: int) -> int:
    """How many rollouts run at once: ``most``, or fewer where each keeps a lane of a stateful tool to its end."""
    stateful = any(TOOLS[name].tool.stateful for name in config.tools)
    return min(most, config.executors.lanes) if stateful else most


def in_flight(config: Config) -> int:
    """How many rollouts of the engine run at once."""
    return at_once(config, IN_FLIGHT_PER_ROW * config.engine.max_batch)


def waves(config: Config, attempts: int) -> int:
    """How many waves so many attempts take: those of one wave run at once."""
    return -(-attempts // in_flight(config))
