"""Bamboogle: two-hop questions that a search engine does not answer at once (Press et al., 2023)."""

from callwright.envs.tasks.benchmarks.search_qa import search_qa

BAMBOOGLE = search_qa("bamboogle", config="bamboogle", split="test", sample="bamboogle_125.jsonl", licence="MIT")
