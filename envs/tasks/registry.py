"""The procedural task families by name: the shipped ones, and those of a user's modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callwright.envs.registry import Registry
from callwright.envs.tasks.absent import Absent
from callwright.envs.tasks.azure import AZURE_FAMILIES
from callwright.envs.tasks.compute import Compute
from callwright.envs.tasks.direct import Direct
from callwright.envs.tasks.family import Family
from callwright.envs.tasks.lookup import Lookup
from callwright.envs.tasks.lookup_compute import LookupCompute
from callwright.envs.tasks.unit_tests import UnitTests

FAMILIES: Registry[type[Family[Any]]] = Registry(
    "task family",
    {
        "lookup": Lookup,
        "compute": Compute,
        "lookup_compute": LookupCompute,
        "unit_tests": UnitTests,
        "direct": Direct,
        "absent": Absent,
        **AZURE_FAMILIES,
    },
)
MIXES: Mapping[str, tuple[str, ...]] = {"azure": tuple(AZURE_FAMILIES)}
"""Families that are evaluated together, evenly, under one name."""
