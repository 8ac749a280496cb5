"""Sends ``web`` commands. The work is in ``command_sender``."""

from callwright.serving.protocol.tools import WEB
from callwright.serving.queues.broker import Broker
from callwright.serving.queues.command_sender import CommandSender


def web_command_sender(broker: Broker, queue: str | None = None) -> CommandSender:
    """The sender of the ``web`` queue."""
    return CommandSender(broker, WEB, queue)
