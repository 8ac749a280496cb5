"""Sends ``azure`` commands. The work is in ``command_sender``."""

from callwright.serving.protocol.tools import AZURE
from callwright.serving.queues.broker import Broker
from callwright.serving.queues.command_sender import CommandSender


def azure_command_sender(broker: Broker, queue: str | None = None) -> CommandSender:
    """The sender of the ``azure`` queue."""
    return CommandSender(broker, AZURE, queue)
