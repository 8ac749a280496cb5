"""The pipeline's queue stage for ``web`` calls over Service Bus. The work is in ``callwright.serving.queues``."""

from callwright.serving.queues.servicebus import ServiceBusBroker
from callwright.serving.queues.web_command_sender import web_command_sender

__all__ = ["ServiceBusBroker", "web_command_sender"]
