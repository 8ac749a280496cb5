"""The model and tokenizer that both sides share: the tiny Llama, and a chat template with which TRL writes our very
tokens.

The template renders a conversation as the ``tags`` dialect splices it, so a script's ids, a result's ids and the
whole context are the same on both sides. The response template tells transformers' parser where a call stands in
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.replay.scripts import GROUP, QUESTION, RESULT
from callwright.serving.engines.codec import Codec
from callwright.serving.models.tiny import new_model, train_tokenizer
from callwright.serving.protocol import WEB

CONTEXT = 1024

# A result is followed by the policy's next turn at once, so after one there is no generation prompt to add.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'tool' %}{{ '<tool_result>[web-result] ' + message['content'] + '</tool_result>\n' }}"
    "{% else %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% for call in message['tool_calls'] or [] %}"
    "{{ '<' + call['function']['name'] + '>' + call['function']['arguments'] | tojson"
    " + '</' + call['function']['name'] + '>' }}{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt and messages[-1]['role'] != 'tool' %}<|assistant|>{% endif %}"
)
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": ["<|assistant|>", "</tool_result>\n"],
    "fields": {
        "tool_calls": {
            "open": "<web>",
            "close": "</web>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": {"name": "web", "arguments": "{content}"}},
        },
        "content": {"close": "<|end|>", "content": "text"},
    },
}
CLOSERS = ("</web>", "</solution>")


@dataclass(frozen=True, slots=True)
class Shared:
    """One model in memory, used by one side at a time."""

    model: Any
    tokenizer: Any
    codec: Codec


def make_shared(seed: int = 0) -> Shared:
    """A fresh tiny model; its weights do not matter, its forward pass does."""
    texts = [QUESTION.format(number=number) for number in range(GROUP)] + [RESULT]
    tokenizer = train_tokenizer(texts, (WEB,))
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.response_template = RESPONSE_TEMPLATE
    model = new_model(len(tokenizer), seed=seed, pad=tokenizer.pad_token_id, eos=tokenizer.eos_token_id).eval()
    # A turn ends at its closer on our side; for TRL the closers are end tokens, so it samples not one token more.
    ends = [tokenizer.eos_token_id, *tokenizer.convert_tokens_to_ids(list(CLOSERS))]
    model.generation_config.eos_token_id = ends
    return Shared(model, tokenizer, Codec(tokenizer, len(tokenizer)))
