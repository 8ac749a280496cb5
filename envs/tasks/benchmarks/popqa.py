"""PopQA: questions about entities of every popularity (Mallen et al., 2023). Its card on the hub names no licence."""

from callwright.envs.tasks.benchmarks.search_qa import search_qa

POPQA = search_qa("popqa", config="popqa", split="test", sample="popqa.jsonl", licence="not stated")
