"""The benchmarks by name: the shipped ones, and those of a user's modules."""

from __future__ import annotations

from callwright.envs.registry import Registry
from callwright.envs.tasks.benchmarks.azure_choice import AZURE_CHOICE
from callwright.envs.tasks.benchmarks.bamboogle import BAMBOOGLE
from callwright.envs.tasks.benchmarks.benchmark import Benchmark
from callwright.envs.tasks.benchmarks.bfcl import BFCL
from callwright.envs.tasks.benchmarks.bfcl_multi_turn import BFCL_MULTI_TURN
from callwright.envs.tasks.benchmarks.gsm8k import GSM8K
from callwright.envs.tasks.benchmarks.hotpotqa import HOTPOTQA
from callwright.envs.tasks.benchmarks.humaneval import HUMANEVAL
from callwright.envs.tasks.benchmarks.math500 import MATH500
from callwright.envs.tasks.benchmarks.mbpp import MBPP
from callwright.envs.tasks.benchmarks.musique import MUSIQUE
from callwright.envs.tasks.benchmarks.nq import NQ
from callwright.envs.tasks.benchmarks.popqa import POPQA
from callwright.envs.tasks.benchmarks.triviaqa import TRIVIAQA
from callwright.envs.tasks.benchmarks.two_wiki import TWO_WIKI
from callwright.serving.errors import UserError

_ALL = (
    *(GSM8K, MATH500, NQ, TRIVIAQA, POPQA, HOTPOTQA, TWO_WIKI, MUSIQUE, BAMBOOGLE),
    *(HUMANEVAL, MBPP, BFCL, BFCL_MULTI_TURN, AZURE_CHOICE),
)
BENCHMARKS: Registry[Benchmark] = Registry("benchmark", {benchmark.name: benchmark for benchmark in _ALL})


def get_benchmark(name: str) -> Benchmark:
    """The benchmark of that name. Raises UserError that names the nearest."""
    if name not in BENCHMARKS:
        raise UserError(BENCHMARKS.missing(name))
    return BENCHMARKS[name]
