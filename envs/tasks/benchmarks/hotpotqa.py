"""HotpotQA: two documents an answer (Yang et al., 2018). In comparison questions the answer stands in the question."""

from callwright.envs.tasks.benchmarks.search_qa import search_qa

HOTPOTQA = search_qa("hotpotqa", config="hotpotqa", split="dev", sample="hotpotqa_200.jsonl", licence="CC-BY-SA-4.0")
