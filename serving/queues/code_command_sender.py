"""Sends ``code`` commands. The work is in ``command_sender``."""

from callwright.serving.protocol.tools import CODE
from callwright.serving.queues.broker import Broker
from callwright.serving.queues.command_sender import CommandSender


def code_command_sender(broker: Broker, queue: str | None = None) -> CommandSender:
    """The sender of the ``code`` queue."""
    return CommandSender(broker, CODE, queue)
