"""Tasks: the procedural families over one invented world, and benchmark loaders."""

from callwright.envs.tasks.family import SLICES, Slice, Split
from callwright.envs.tasks.registry import FAMILIES
from callwright.envs.tasks.suite import FamilySpec, TaskSuite, build_suite
from callwright.envs.tasks.task import Step, Task
from callwright.envs.tasks.world import World, WorldSpec

__all__ = [
    "FAMILIES",
    "SLICES",
    "FamilySpec",
    "Slice",
    "Split",
    "Step",
    "Task",
    "TaskSuite",
    "World",
    "WorldSpec",
    "build_suite",
]
