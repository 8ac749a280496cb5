"""TriviaQA: quiz questions with many aliases an answer (Joshi et al., 2017). Its card on the hub names no licence."""

from callwright.envs.tasks.benchmarks.search_qa import search_qa

TRIVIAQA = search_qa("triviaqa", config="triviaqa", split="test", sample="triviaqa.jsonl", licence="not stated")
