"""Where a Service Bus connection string is, and what an error of the SDK says without it.

Invariant: the string is read from its environment variable when it is needed; nothing of ours keeps it, and no error
shows it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from callwright.serving.errors import UserError
from callwright.serving.queues.broker import BrokerError, LeaseLost

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient

# By name: the SDK may be missing, which is said where it is needed first.
_LOST = ("MessageAlreadySettled", "MessageLockLostError", "SessionLockLostError")
_SECRETS = re.compile(r"\b(SharedAccessKey|SharedAccessSignature|sig)=[^;&\s]+")


def without_secrets(text: str) -> str:
    """The text, without the values of keys and signatures in it."""
    return _SECRETS.sub(r"\1=***", text)


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the connection string is: the name of an environment variable."""

    variable: str

    def open(self, retries: int) -> ServiceBusClient:
        """A client. Raises UserError where the variable, what it holds, or the SDK is missing."""
        try:
            from azure.servicebus.aio import ServiceBusClient
        except ModuleNotFoundError:
            raise UserError("the servicebus broker needs its extra: pip install 'callwright[servicebus]'") from None
        text = self._text()
        if not text:
            raise UserError(f"set {self.variable} to the connection string of a Service Bus namespace")
        try:
            return ServiceBusClient.from_connection_string(text, retry_total=retries)
        except ValueError:
            raise UserError(f"{self.variable} does not hold the connection string of a Service Bus namespace") from None

    @property
    def endpoint(self) -> str:
        """The namespace's address, for messages."""
        found = re.search(r"Endpoint=([^;]+)", self._text())
        return found.group(1).rstrip("/") if found else f"the namespace of {self.variable}"

    def said(self, error: BaseException) -> str:
        """An error of the SDK as one line without secrets."""
        line = " ".join(str(error).split())
        for secret in _SECRETS.finditer(self._text()):
            line = line.replace(secret.group().partition("=")[2], "***")
        return f"{type(error).__name__}: {without_secrets(line)}"

    @contextmanager
    def reported(self, what: str) -> Iterator[None]:
        """The boundary: whatever the SDK raises inside becomes a BrokerError that says ``what`` could not be done."""
        try:
            yield
        except (UserError, BrokerError):
            raise
        except Exception as error:
            if type(error).__name__ in _LOST:
                raise LeaseLost(f"could not {what}: {self.said(error)}") from None
            raise BrokerError(f"could not {what} at {self.endpoint}: {self.said(error)}") from None

    def _text(self) -> str:
        return os.environ.get(self.variable, "")
