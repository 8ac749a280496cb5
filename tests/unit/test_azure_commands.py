"""Which of a model's texts become arguments of the Azure CLI, and which are refused with a line it can use."""

from __future__ import annotations

import pytest

from callwright.envs.executors.azure.allowed import EVERYWHERE, LIVE, STORAGE, Flags
from callwright.envs.executors.azure.command_line import LONGEST_COMMAND, Refused, read_command
from callwright.envs.executors.azure.housekeeping import fill_call, housekeeping, read_call
from callwright.envs.executors.settings import AzureSettings

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("az storage container list", ["storage", "container", "list"]),
        (
            "az storage blob upload -c box -n 'a b.txt' --data 'x; y | z' --metadata k=v l=w",
            [
                *("storage", "blob", "upload", "-c", "box", "-n", "a b.txt", "--data", "x; y | z"),
                *("--metadata", "k=v", "l=w", "--no-progress"),
            ],
        ),
        (
            "az storage blob list -c box --query \"[?name=='a'] | length(@)\" -o tsv",
            ["storage", "blob", "list", "-c", "box", "--query", "[?name=='a'] | length(@)", "-o", "tsv"],
        ),
        (
            "az  storage\nmessage put -q line --content=-5",
            ["storage", "message", "put", "-q", "line", "--content=-5"],
        ),
    ],
)
def test_what_is_listed_passes_as_it_was_written(command: str, arguments: list[str]) -> None:
    assert list(read_command(command)) == arguments


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("", "begins with az"),
        ("rm -rf /", "begins with az"),
        ("/usr/bin/az storage container list", "begins with az"),
        ("az", "not available"),
        ("az login", "not available"),
        ("az group list", "not available"),
        ("az rest --url http://example.org", "not available"),
        ("az storage account keys list", "not available"),
        ("az storage account show-connection-string", "not available"),
        ("az storage container generate-sas -n box", "not available"),
        ("az storage blob sync -c box", "not available"),
        ("az storage message get -q line", "not available"),
        ("az storage container lst", "az storage container list"),
        ("az storage container create box", "not available"),
        ("az storage container list; az login", "there is no shell"),
        ("az storage container list && true", "there is no shell"),
        ("az storage container list | wc -l", "there is no shell"),
        ("az storage container list > out.txt", "there is no shell"),
        ("az storage blob upload -c box -n b --data $(id)", "there is no shell"),
        ("az storage container create --name 'box", "cannot be split"),
        ("az storage container list --debug", "takes no '--debug'"),
        ("az storage container list --verbose", "takes no '--verbose'"),
        ("az storage container list --account-name x", "takes no '--account-name'"),
        ("az storage container list --connection-string x", "takes no '--connection-string'"),
        ("az storage container list --blob-endpoint http://x", "takes no '--blob-endpoint'"),
        ("az storage container list --subscription x", "takes no '--subscription'"),
        ("az storage container show --nam box", "takes no '--nam'"),
        ("az storage container show -nbox", "takes no '-nbox'"),
        ("az storage blob upload -c box -n b --data @/etc/passwd", "begins with @"),
        ("az storage blob upload -c box -n b --data=@/etc/passwd", "begins with @"),
        ("az storage blob upload -c box -n b --data @-", "begins with @"),
        ("az storage container create -n box --metadata k=@/etc/passwd", "begins with @"),
        ("az storage blob upload -c box -n b --file /etc/passwd", "working folder"),
        ("az storage blob upload -c box -n b -f ../x", "working folder"),
        ("az storage blob upload -c box -n b -f a/../../x", "working folder"),
        ("az storage blob upload -c box -n b --file=~/x", "working folder"),
        ("az storage blob delete-batch -s http://127.0.0.1/x/box --pattern x", "plain name"),
        ("az storage blob copy start -c box -b b --source-uri http://example.org", "takes no '--source-uri'"),
        ("az storage container show --name", "takes one value"),
        ("az storage container show --name a --name b", "given twice"),
        ("az storage container show --name a b", "takes one value"),
        ("az storage container list --query " + "a" * 400, "longer than 300"),
        ("az storage blob upload -c box -n b --data " + "x" * LONGEST_COMMAND, "longer than 32000 bytes"),
        ("az storage blob upload -c box -n b --data a\0b", "NUL"),
    ],
)
def test_what_is_not_listed_is_refused_with_a_reason(command: str, why: str) -> None:
    with pytest.raises(Refused, match=r".*") as refused:
        read_command(command)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_no_flag_names_an_account_a_secret_or_a_url() -> None:
    forbidden = ("account", "key-", "sas", "token", "secret", "connection", "endpoint", "uri", "url", "debug", "auth")
    tables: list[Flags] = [*STORAGE.values(), *LIVE.values(), EVERYWHERE]
    names = {name for flags in tables for flag in flags for name in flag.names}
    assert not [name for name in names if any(word in name for word in forbidden)]


def test_live_commands_are_about_the_one_group() -> None:
    assert read_command("az storage account list", LIVE, "mine") == (
        *("storage", "account", "list", "--resource-group", "mine"),
    )
    assert read_command("az group show -n mine", LIVE, "mine")[-2:] == ("--resource-group", "mine")
    for command in ("az storage account list -g other", "az group show --name=other", "az resource list -g mine2"):
        with pytest.raises(Refused, match="only the resource group mine"):
            read_command(command, LIVE, "mine")
    with pytest.raises(Refused, match="not available"):
        read_command("az storage container list", LIVE, "mine")
    with pytest.raises(Refused, match="not available"):
        read_command("az group delete -n mine", LIVE, "mine")


@pytest.mark.parametrize("half", [{"allow_live": True}, {"resource_group": "mine"}])
def test_a_real_subscription_needs_both_keys(half: dict[str, object]) -> None:
    assert not AzureSettings().allow_live
    with pytest.raises(ValueError, match="go together"):
        AzureSettings.model_validate(half)


def test_the_environments_own_commands_are_told_from_any_other_text() -> None:
    fill = housekeeping(fill_call('{"containers": {}}').arguments["azure_command"])
    read = housekeeping(read_call().arguments["azure_command"])
    assert fill is not None
    assert read is not None
    assert (fill.do, fill.seed, read.do, read.seed) == ("fill", '{"containers": {}}', "read", "")
    assert fill.token == read.token
    assert housekeeping("callwright read") is None
    assert housekeeping("az storage container list") is None
