"""The ``azure`` tool: the real Azure CLI, against an emulator that knows nothing of the network."""

from callwright.envs.executors.azure.executor import AzureExecutor

__all__ = ["AzureExecutor"]
