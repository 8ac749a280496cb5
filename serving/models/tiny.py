"""The tiny model: a Llama of about 0.7M parameters with its own tokenizer, made from scratch in a second.

Invariants: digits and capital letters are one token each, so that copying a key or an operand is copying tokens; every
marker is one special token; any other text falls back to bytes, so every string has ids and decodes back exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from callwright.serving.protocol import Tool
from callwright.serving.protocol.dialects import get_dialect

SPECIAL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def body_pieces(tool: Tool) -> list[str]:
    """The fixed text between a call body's values, from the declaration: each becomes one piece for the tokenizer."""
    opener = f'{{"type":"{tool.name}"'
    pieces = []
    for index, (name, schema) in enumerate(tool.properties.items()):
        quote = '"' if schema.get("type") == "string" else ""
        pieces.append(f'{opener if index == 0 else ""},"{name}":{quote}')
        if index:
            pieces.append(f'",{pieces[-1][1:]}')  # the same after a string value, whose closing quote joins in
    return pieces


def train_tokenizer(
    texts: Iterable[str], tools: Iterable[Tool], vocab_size: int = 512, *, dialect: str = "tags"
) -> Any:
    """A byte-level BPE tokenizer over ``texts``; returns a transformers fast tokenizer with a chat template.

    Merges never cross a digit or a capital letter; the fixed pieces of call bodies, commands and results stay whole.
    The markers are those of ``dialect``.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tools = list(tools)
    literals = [piece for tool in tools for piece in body_pieces(tool)]
    literals += [f"[{tool.name}-{kind}] " for tool in tools for kind in ("result", "error")]
    literals += [
        "python3 -c '",
        '{"results":[{"title":"',
        '{"results":[]',
        '","content":"',
        '{"stdout":"',
        '{"stderr":"',
    ]
    literals.sort(key=len, reverse=True)
    pattern = "|".join(map(re.escape, literals)) + r"|[A-Z]|[0-9]| ?[a-z_]+\(?|\s+|[^A-Za-z0-9\s]+|."
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    markers = get_dialect(dialect).markers(tools)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIAL, *markers],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*texts, *[piece for piece in literals for _ in range(1000)]], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=["<|system|>", "<|user|>", "<|assistant|>", *markers],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )


def new_model(vocab_size: int, *, seed: int, pad: int, eos: int, layers: int = 3, width: int = 128) -> Any:
    """A freshly initialised Llama: ``layers`` x ``width``, 4 heads, tied embeddings, float32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        rope_theta=10_000.0,
        tie_word_embeddings=True,
        pad_token_id=pad,
        eos_token_id=eos,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)
