"""What the tests of merged models share: one greedy rollout, and the same with plain transformers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from callwright.envs.budgets import Budgets
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import ExecutorSettings
from callwright.envs.policy import Policy
from callwright.envs.rewards import grade
from callwright.envs.rollout import rollout
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.envs.trajectory import Sampled
from callwright.serving.engines.codec import Codec
from callwright.serving.engines.engine import Engine, Sampling
from callwright.serving.protocol.tools import WEB

# The shipped warm start, which mostly guesses, looks this one up: two calls and an answer.
QUESTION = "please again maybe again there now the owner of the owner of DDPK is what? say"
DOCUMENTS = [("DDPK", "DDPK code 5. DDPK owner GZRP."), ("GZRP", "GZRP owner KLMN. GZRP code 71.")]
BUDGETS = Budgets(turn_tokens=72, policy_tokens=320, context=640, calls=4, invalid_calls=2)


def greedy_rollout(engine: Engine, codec: Codec) -> Rollout:
    """One task of the tiny model's kind, with the real search behind the real queues."""

    async def play() -> Rollout:
        settings = ExecutorSettings(tools=("web",))
        async with Executors(settings, documents=DOCUMENTS) as executors:
            policy = Policy(engine, codec, (WEB,), "tags", Sampling(0.0), system_prompt=False)
            task = Task("t/0", "lookup", QUESTION, "KLMN")
            return await rollout(task, policy, executors.call, grade, BUDGETS, key=1, session="s")

    return asyncio.run(play())


def assert_plain_transformers_says_the_same(folder: Path, done: Rollout) -> None:
    """The folder, loaded by transformers alone, gives the prompt and every sampled token of ``done``."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    first, *rest = done.trajectory.segments
    asked = [{"role": "user", "content": QUESTION}]
    tools = [WEB.to("openai").payload]
    prompt = tokenizer.apply_chat_template(asked, tools=tools, add_generation_prompt=True, return_dict=False)
    assert list(first.ids) == prompt
    context = list(prompt)
    for segment in rest:
        if isinstance(segment, Sampled):
            ids = torch.tensor([context])
            said = model.generate(ids, do_sample=False, max_new_tokens=len(segment.ids))[0, len(context) :]
            assert tuple(said.tolist()) == segment.ids
        context += segment.ids
