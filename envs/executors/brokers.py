"""The broker that a config chooses."""

from __future__ import annotations

from callwright.envs.executors.settings import ExecutorSettings
from callwright.serving.queues.broker import Broker
from callwright.serving.queues.memory import MemoryBroker
from callwright.serving.queues.servicebus import ServiceBusBroker
from callwright.serving.queues.sqlite import SqliteBroker


def open_broker(settings: ExecutorSettings) -> Broker:
    """Not reached yet: ``start`` does that, or the first use."""
    if settings.broker == "sqlite":
        return SqliteBroker(settings.queues)
    if settings.broker == "servicebus":
        return ServiceBusBroker(settings.servicebus_env, prefix=settings.servicebus_prefix)
    return MemoryBroker()
