"""Where a model's code runs: bubblewrap around a pool of warm zygotes, one fresh set of namespaces a call."""

from callwright.envs.executors.sandbox.bare import BareRunner
from callwright.envs.executors.sandbox.limits import Limits, Run, SandboxError
from callwright.envs.executors.sandbox.pool import SandboxPool

__all__ = ["BareRunner", "Limits", "Run", "SandboxError", "SandboxPool"]
