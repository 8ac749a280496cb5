"""2WikiMultihopQA: chains over Wikipedia (Ho et al., 2020). The answer stands in the question of a third."""

from callwright.envs.tasks.benchmarks.search_qa import search_qa

TWO_WIKI = search_qa("2wiki", config="2wikimultihopqa", split="dev", sample="2wiki_200.jsonl", licence="Apache-2.0")
