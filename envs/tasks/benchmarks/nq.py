"""Natural Questions, open: questions that people asked a search engine (Kwiatkowski et al., 2019)."""

from callwright.envs.tasks.benchmarks.search_qa import search_qa

NQ = search_qa("nq", config="nq", split="test", sample="nq_open_200.jsonl", licence="CC-BY-SA-3.0")
