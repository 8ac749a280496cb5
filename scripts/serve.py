"""``callwright serve``: one checkpoint behind the vendors' APIs, for any client or agent that takes a base URL."""

from __future__ import annotations

from callwright.scripts.common import Overrides, config_of_checkpoint, train_extra
from callwright.scripts.eval import CheckpointArgument, ConfigOption

# A model from elsewhere is told of the tools, in the words that most were trained on.
FOREIGN = ("smollm2", "dialect=hermes")


def serve(checkpoint: CheckpointArgument, overrides: Overrides = None, config: ConfigOption = None) -> None:
    """Serve a checkpoint over HTTP (serve.port=8000 serve.record=DIR): OpenAI, Anthropic, Gemini and Ollama APIs."""
    resolved = config_of_checkpoint(checkpoint, overrides or [], config, FOREIGN)
    with train_extra("serve"):
        from callwright.training.serve import serve as run_server

        run_server(resolved)
