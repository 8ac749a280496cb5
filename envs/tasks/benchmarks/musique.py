"""MuSiQue: two to four hops that cannot be skipped (Trivedi et al., 2022)."""

from callwright.envs.tasks.benchmarks.search_qa import search_qa

MUSIQUE = search_qa("musique", config="musique", split="dev", sample="musique_200.jsonl", licence="CC-BY-4.0")
