"""The files for clusters name what exists: our verbs, configs, extras and queues, and the keys of the tools that read
them. Nothing of it runs here."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from callwright.envs.executors.registry import TOOLS
from callwright.scripts.cli import app
from callwright.serving.engines.vllm.server import NEEDED
from callwright.serving.errors import UserError
from callwright.serving.queues.broker import command_queue
from callwright.training.config import is_override, load_config
from callwright.training.weights.vllm_servers import server_arguments, server_variables

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "scripts" / "deploy"
OURS = {"callwright-trainer": "trainer", "callwright-server": "server", "callwright-worker": "worker"}
VERBS = {command.name for command in app.registered_commands}
# Of KEDA's azure-servicebus scaler.
TRIGGER_FIELDS = {"queueName", "messageCount", "activationMessageCount", "namespace", "connectionFromEnv"}


def check_words(words: list[str]) -> None:
    """A command line of ours: the verb exists, and its config loads."""
    verb, *rest = words
    assert verb in VERBS
    if verb == "worker":
        tool = rest.pop(0)
        assert tool in TOOLS
    if verb == "serve":
        rest[0] = "quickstart"
    if rest == ["--help"]:
        return
    assert all(is_override(word) for word in rest[1:])
    config = load_config(rest[0], rest[1:])
    if verb == "worker":
        assert config.executors.broker_of_worker != "memory"


def test_the_pages_own_commands_load() -> None:
    lines = (ROOT / "docs" / "scaling.md").read_text().splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("    callwright ")]
    assert len(commands) >= 7
    for _, *words in commands:
        if words[0] == "merge":
            assert load_config("quickstart", words[2:]).merge.folder == "my-model"
        else:
            check_words(words)
    files = [match[1] for line in lines if (match := re.search(r"^    .*accelerate launch --config_file (\S+)", line))]
    assert len(files) >= 3
    assert all((ROOT / file).is_file() for file in files)


def instructions(name: str) -> list[tuple[str, str]]:
    text = (DEPLOY / f"{name}.Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


@pytest.mark.parametrize("name", OURS.values())
def test_an_image_installs_extras_that_exist_and_starts_a_verb(name: str) -> None:
    found = instructions(name)
    assert {word for word, _ in found} <= {
        "FROM",
        "RUN",
        "ENV",
        "WORKDIR",
        "COPY",
        "VOLUME",
        "EXPOSE",
        "ENTRYPOINT",
        "CMD",
    }
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (asked,) = [match[1] for word, rest in found if word == "RUN" and (match := re.search(r'"\.\[(.*?)\]"', rest))]
    assert set(asked.split(",")) <= set(extras)
    assert ("train" in asked or "serve" in asked) is (name != "worker")  # a worker has no torch
    assert ("ENTRYPOINT", '["callwright"]') in found
    (command,) = [yaml.safe_load(rest) for word, rest in found if word == "CMD"]
    check_words(command)
    assert f"-t callwright-{name} ." in (DEPLOY / f"{name}.Dockerfile").read_text()


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def named(kind: str) -> dict[str, dict[str, Any]]:
    return {document["metadata"]["name"]: document for document in documents() if document["kind"] == kind}


def containers() -> Iterator[dict[str, Any]]:
    for document in documents():
        if document["kind"] in ("Job", "Deployment"):
            pod = document["spec"]["template"]["spec"]
            volumes = {volume["name"] for volume in pod.get("volumes", ())}
            for container in pod["containers"]:
                assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes
                yield container


def test_containers_run_our_images_with_words_that_load() -> None:
    ours = [container for container in containers() if container["image"] in OURS]
    assert len(ours) == 3
    for container in ours:
        check_words([str(word) for word in container["args"]])
        (secret,) = container["env"]
        assert secret["name"] == load_config("quickstart").executors.servicebus_env
        assert set(secret) == {"name", "valueFrom"}  # it stands in no file
    assert {container["image"] for container in containers()} - set(OURS) == {"callwright-policy"}


def test_the_policys_server_can_be_sent_what_the_trainer_sends() -> None:
    """Stock vLLM of the version that make vllm installs, started as a trainer would start it."""
    found = dict(instructions("policy"))
    version = re.search(r"^VLLM=(.*)$", (ROOT / "scripts" / "setup_vllm.sh").read_text(), re.MULTILINE)
    assert version is not None
    assert found["FROM"] == f"vllm/vllm-openai:v{version[1]}"
    trainer, server = (next(c for c in containers() if c["name"] == name) for name in ("trainer", "vllm"))
    config = load_config(trainer["args"][1], trainer["args"][2:])
    given = dict(word.removeprefix("--").partition("=")[::2] for word in server["args"])
    for name, value in server_arguments(config).items():
        assert given[name] == ("" if value is True else str(value))
    for name, value in server_variables(config).items():
        assert f"{name}={value}" in found["ENV"]
    assert given["model"] == config.model.path
    assert int(given["max-model-len"]) == config.engine.max_context
    mounts = [{m["name"]: m["mountPath"] for m in container["volumeMounts"]} for container in (trainer, server)]
    assert mounts[0]["runs"] == mounts[1]["runs"]
    assert config.engine.vllm.urls == tuple(f"http://{name}:8000" for name in named("Service"))


def test_selectors_find_their_pods() -> None:
    for document in documents():
        if document["kind"] == "Deployment":
            wanted = document["spec"]["selector"]["matchLabels"]
            assert wanted.items() <= document["spec"]["template"]["metadata"]["labels"].items()
    (service,) = named("Service").values()
    assert service["spec"]["selector"]["app"] in named("Deployment")


def test_workers_follow_the_queue_of_their_tool() -> None:
    deployments, secrets = named("Deployment"), named("TriggerAuthentication")
    scaled = named("ScaledObject")
    assert set(scaled) == {name for name in deployments if "worker" in name}
    for document in scaled.values():
        spec = document["spec"]
        (container,) = deployments[spec["scaleTargetRef"]["name"]]["spec"]["template"]["spec"]["containers"]
        tool = container["args"][1]
        (trigger,) = spec["triggers"]
        assert trigger["type"] == "azure-servicebus"
        assert set(trigger["metadata"]) <= TRIGGER_FIELDS
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
        assert trigger["metadata"]["queueName"] == command_queue(tool)
        assert trigger["authenticationRef"]["name"] in secrets
        assert spec["minReplicaCount"] >= 1
        assert not TOOLS[tool].tool.stateful  # a stateful tool has one worker


@pytest.mark.parametrize(
    ("name", "section", "kind"),
    [("fsdp2", "fsdp_config", "FSDP"), ("deepspeed-zero2", "deepspeed_config", "DEEPSPEED")],
)
def test_accelerate_reads_its_config(name: str, section: str, kind: str) -> None:
    pytest.importorskip("accelerate", reason="the train extra is not installed")
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import launch_command_parser

    config = load_config_from_file(str(DEPLOY / f"{name}.yaml"))
    assert str(config.distributed_type).endswith(kind)
    known = {option for action in launch_command_parser()._actions for option in action.option_strings}
    for key in getattr(config, section):
        assert f"--{key}" in known


def head_commands(name: str) -> list[tuple[dict[str, str], list[str]]]:
    """The commands in the head of a shipped config: their variables, and their words."""
    text = (ROOT / "configs" / f"{name}.yaml").read_text().replace("\\\n#", "")
    found = []
    for line in text.splitlines():
        if line.startswith("#   "):
            words = shlex.split(line.removeprefix("#").partition(" (once)")[0])
            variables = [word for word in words if re.match(r"[A-Z_]+=", word)]
            found.append((dict(word.split("=", 1) for word in variables), [w for w in words if w not in variables]))
    return found


def test_eight_gpus_are_shared_out_as_the_config_says() -> None:
    config = load_config("gpu-8b")
    _, (at_server, server), (at_trainer, trainer) = head_commands("gpu-8b")
    assert server[1:3] == ["serve", config.model.path]
    given = dict(zip(server[3::2], server[4::2], strict=True))
    wanted = {name: NEEDED[name] for name in ("logprobs-mode", "generation-config")} | server_arguments(config)
    for name, value in wanted.items():
        assert given[f"--{name}"] == str(value)
    assert server_variables(config).items() <= at_server.items()
    assert config.engine.vllm.urls == (f"http://{given['--host']}:{given['--port']}",)
    assert given["--dtype"] == config.engine.dtype
    assert int(given["--max-model-len"]) == config.engine.max_context
    assert int(given["--max-num-seqs"]) == config.engine.max_batch

    serving, training = (at["CUDA_VISIBLE_DEVICES"].split(",") for at in (at_server, at_trainer))
    assert sorted(serving + training) == list("01234567")
    assert int(given["--tensor-parallel-size"]) == len(serving)
    options = dict(zip(trainer[2::2], trainer[3::2], strict=False))
    assert (ROOT / options["--config_file"]).name == "fsdp2.yaml"
    assert int(options["--num_processes"]) == len(training)
    assert config.grpo.prompts_per_step % len(training) == 0
    assert trainer[-4:] == ["-m", "callwright", "train", "gpu-8b"]


@pytest.mark.parametrize(
    ("variables", "word", "says"),
    [
        ({"ACCELERATE_USE_FSDP": "true"}, "engine.kind=transformers", "no process can sample from weights that FSDP"),
        ({"ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}, "engine.kind=transformers", "ZeRO-3: its shards"),
        ({"ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}, "engine.kind=vllm", "ZeRO-3: its shards"),
        ({"LOCAL_WORLD_SIZE": "1"}, "engine.kind=vllm", "name servers that all machines"),
    ],
)
def test_shards_that_nobody_could_sample_from_are_refused(
    variables: dict[str, str], word: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trl", reason="the train extra is not installed")
    from callwright.training.run import check

    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_WORLD_SIZE": "2", **variables}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=says):
        check(load_config("quickstart", [word]))
