"""Configs: one line for every mistake, YAML as people mean it, and a dump that loads back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callwright.training.config import ConfigError, dump_config, load_config, shipped_configs
from callwright.training.config_docs import describe
from callwright.training.config_schema import Config, config_keys
from callwright.training.yaml_values import parse_yaml

SHIPPED = sorted(shipped_configs())


def write(folder: Path, text: str, name: str = "c.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_config_survives_its_dump(name: str, tmp_path: Path) -> None:
    config = load_config(name)
    assert config.name == name
    assert load_config(write(tmp_path, dump_config(config))) == config


def test_gpu_config_differs_only_in_model_engine_and_sizes() -> None:
    small, large = (flat(load_config(name).model_dump()) for name in ("smollm2", "gpu-4b"))
    changed = {key for key in small.keys() | large.keys() if small.get(key) != large.get(key)}
    sizes = {"grpo.steps", "grpo.prompts_per_step", "grpo.num_generations", "eval.n", "name"}
    sizes.add("warm_start.stages")  # so many traces and steps, for a large model none
    others = {key for key in changed - sizes if key.split(".")[0] not in ("model", "engine", "budgets")}
    assert not others


def test_overrides_are_yaml_and_the_last_wins() -> None:
    config = load_config(
        "quickstart", ["grpo.steps=3", "tasks.world.stale=1e-1", "model.lora.r=4", "grpo.trl.beta=1e-3"]
    )
    assert config.grpo.steps == 3
    assert config.tasks.world.stale == 1e-1
    assert config.model.lora is not None
    assert config.model.lora.r == 4
    assert config.grpo.trl["beta"] == 1e-3
    assert load_config("quickstart", ["seed=1", "seed=2", "tracking.wandb=off"]).seed == 2
    assert load_config("quickstart", ["model.lora=null", "tools=[web]"]).tools == ("web",)


def test_a_connection_string_in_the_place_of_its_variables_name_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match=r"executors\.servicebus_env") as caught:
        load_config("quickstart", ["executors.servicebus_env='Endpoint=sb://x;SharedAccessKey=planted'"])
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("grpo.stepz=3", "did you mean grpo.steps?"),
        ("grp.steps=3", "did you mean grpo?"),
        ("max_batch=3", "did you mean engine.max_batch?"),
        ("engine.zzz=3", "there are kind, max_batch"),
        ("executors.broker=rabbit", "'memory', 'sqlite' or 'servicebus'"),
        ("executors={external: [code], broker: memory}", "executors.broker=sqlite or null"),
        ("executors.external=[fly]", "no tool fly; there are web, code, azure"),
        ("executors.health_port=70000", "less than or equal to 65535"),
        ("grpo.steps=many", "grpo.steps should be a valid integer"),
        ("grpo.steps=true", "not True"),
        ("grpo=3", "grpo is a section of keys"),
        ("grpo.steps.x=1", "steps is a value, not a section"),
        ("grpo.steps=[1", "quotes"),
        ("=3", "key=value"),
        ("name=../x", "pattern"),
        ("engine.device=gpu", "'auto', 'cpu' or 'cuda'"),
        ("tasks.families.lookup.wieght=2", "did you mean tasks.families.lookup.weight?"),
        ("tasks.families.lookup.dials.hop=2", "its dials: hops"),
        ("tasks.families.nosuch.weight=1", "there are lookup"),
    ],
)
def test_a_wrong_override_is_one_line_with_the_mend(override: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("quickstart", [override])
    message = str(caught.value)
    assert message.startswith(override)
    assert says in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "line"),
        ("- 1", "a config is"),
        ("seed: 1\nseed: 2", "key seed stands twice"),
        ("grpo: {step: 1}", "did you mean grpo.steps?"),
        ("extends: nowhere", "no config nowhere"),
        ("extends: c.yaml", "extends itself"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_it(text: str, says: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=says) as caught:
        load_config(path)
    assert "\n" not in str(caught.value)


def test_a_missing_config_names_the_nearest_shipped_one() -> None:
    with pytest.raises(ConfigError, match="did you mean quickstart"):
        load_config("quikstart")


def test_extends_holds_only_what_differs(tmp_path: Path) -> None:
    write(tmp_path, "seed: 7\ngrpo: {steps: 5, temperature: 0.5}", "base.yaml")
    config = load_config(write(tmp_path, "extends: base.yaml\ngrpo: {steps: 6}"))
    assert (config.seed, config.grpo.steps, config.grpo.temperature) == (7, 6, 0.5)


def test_a_run_folder_is_a_config(tmp_path: Path) -> None:
    write(tmp_path, "seed: 9", "config.yaml")
    assert load_config(tmp_path).seed == 9


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("-2.5E6", -2.5e6),
        ("007", "007"),
        ("off", "off"),
        ("no", "no"),
        ("true", True),
        ("", None),
        ("2026-11-01", "2026-11-01"),
        ("1:30", "1:30"),
        ("[1, a]", [1, "a"]),
    ],
)
def test_yaml_reads_as_people_mean_it(text: str, value: object) -> None:
    parsed = parse_yaml(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_every_key_is_described() -> None:
    page = describe()
    for key, model, name in config_keys(Config):
        described = model.model_fields[name].description or model.__module__.startswith("callwright.envs")
        is_section = f"## {key}" in page
        assert is_section or (described and f"`{key}`" in page), key


def test_the_configuration_page_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    if not page.exists():
        pytest.skip("no docs/configuration.md yet")
    assert page.read_text(encoding="utf-8") == describe(), "run make docs"


def flat(data: dict[Any, Any], prefix: str = "") -> dict[str, object]:
    keys: dict[str, object] = {}
    for key, value in data.items():
        keys |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return keys
