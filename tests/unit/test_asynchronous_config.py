"""What does not go together with asynchronous training or its corrections is one line with the mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from callwright.serving.errors import UserError
from callwright.training.asynchronous.groups import groups_at_once, longest_wait_s
from callwright.training.config import ConfigError, load_config
from callwright.training.corrections import Corrections
from callwright.training.grpo import grpo_arguments

pytestmark = pytest.mark.unit

ON = "grpo.asynchronous.max_staleness=1"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((ON, "deterministic=true"), "set grpo.asynchronous=null"),
        ((ON, "grpo.faults.drop=0.1"), "asynchronous batches overlap"),
        ((ON, "grpo.asynchronous.close_at=9"), "close_at 9 is more than num_generations 8"),
        ((ON, "grpo.asynchronous.close_at=5"), "may leave 0.38 of a batch late, and max_infra_share 0.25"),
        (("grpo.asynchronous.max_staleness=-1",), "greater than or equal to 0"),
        (("grpo.asynchronous.stale=1",), "unknown key grpo.asynchronous.stale"),
    ],
)
def test_what_does_not_go_together(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("quickstart", words)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("top_p", "0.9", "whole distribution"),
        ("top_k", "20", "whole distribution"),
        ("min_p", "0.1", "whole distribution"),
        ("repetition_penalty", "1.1", "whole distribution"),
        ("vllm_importance_sampling_mode", "rows", "token_truncate, token_mask, sequence_truncate, sequence_mask"),
        ("vllm_importance_sampling_clip_min", "4", "must be less than"),
    ],
)
@pytest.mark.parametrize("order", [ON, "grpo.asynchronous=null"])
def test_what_trl_would_get_wrong_is_refused(tmp_path: Path, order: str, key: str, value: str, says: str) -> None:
    config = load_config("quickstart", [order, f"grpo.trl.{key}={value}"])
    with pytest.raises(UserError, match=f"grpo.trl.*{says}"):
        grpo_arguments(config, tmp_path)


def test_vespo_takes_token_weights_alone(tmp_path: Path) -> None:
    words = [ON, "grpo.trl.loss_type=vespo", "grpo.trl.vllm_importance_sampling_mode=sequence_mask"]
    with pytest.raises(UserError, match="vespo takes token_truncate or token_mask"):
        grpo_arguments(load_config("quickstart", words), tmp_path)


def test_corrections_are_on_where_another_policy_may_have_sampled(tmp_path: Path) -> None:
    def corrections(*words: str) -> Corrections:
        return Corrections.of(grpo_arguments(load_config("quickstart", words), tmp_path), None)

    assert not corrections().correction
    assert corrections(ON) == Corrections(correction=True, mode="token_truncate", low=None, high=3.0)
    own = ["grpo.trl.vllm_importance_sampling_mode=sequence_mask", "grpo.trl.vllm_importance_sampling_clip_max=5"]
    assert corrections(ON, *own) == Corrections(correction=True, mode="sequence_mask", low=None, high=5.0)
    assert not corrections(ON, "grpo.trl.vllm_importance_sampling_correction=false").correction


def test_the_trainer_waits_for_all_that_may_be_ahead_at_most() -> None:
    words = [ON, "engine.max_batch=4", "grpo.prompts_per_step=3", "grpo.num_generations=8", "grpo.deadline_s=10"]
    config = load_config("quickstart", words)
    assert config.grpo.asynchronous is not None
    assert groups_at_once(config) == 2
    assert longest_wait_s(config, config.grpo.asynchronous) == 3 * 10 + 60
