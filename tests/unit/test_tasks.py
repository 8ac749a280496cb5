"""The task suite's promises: addressed randomness, disjoint splits, answers that never stand in the question."""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import shlex
import sqlite3
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callwright.envs.tasks import (
    FAMILIES,
    SLICES,
    FamilySpec,
    Task,
    TaskSuite,
    World,
    WorldSpec,
    build_suite,
    computations,
    direct,
    lookup,
    lookup_compute,
    unit_tests,
)
from callwright.envs.tasks.azure import AZURE_FAMILIES
from callwright.envs.tasks.family import Templates
from callwright.envs.tasks.world import POOLS
from callwright.serving.protocol.values import ToolCall

pytestmark = pytest.mark.unit

WORLDLY = [name for name in FAMILIES if name not in AZURE_FAMILIES]  # for the others: test_azure_families.py
ALL_KINDS = list(computations.KINDS)
SMALL = WorldSpec(entities=200, eval_entities=80, long_entities=40)
HARD: dict[str, dict[str, Any]] = {
    "lookup": {"hops": [1, 2, 3], "attributes": ["code", "owner"]},
    "compute": {"kinds": ALL_KINDS, "base_digits": [2, 5], "modulus_digits": [3, 9]},
    "unit_tests": {"levels": ["linear", "pipeline", "filter"]},
    "direct": {"rules": ["backwards", "next"]},
}
TEMPLATES: dict[str, Templates] = {
    "lookup": lookup.TEMPLATES,
    "lookup_compute": lookup_compute.TEMPLATES,
    "unit_tests": unit_tests.TEMPLATES,
    **{name: family.templates for name, family in AZURE_FAMILIES.items()},
    **{f"direct.{rule}": templates for rule, templates in direct.TEMPLATES.items()},
    **{f"compute.{kind}": templates for kind, (templates, _) in computations.KINDS.items()},
}


def suite_of(seed: int = 0, hard: bool = False, world: WorldSpec = SMALL) -> TaskSuite:
    dials = HARD if hard else {}
    return build_suite({name: FamilySpec(dials=dials.get(name, {})) for name in WORLDLY}, world, seed)


def subject(task: Task) -> set[str]:
    """What a question asks about, apart from its wording: its names and numbers, in order, or the function wanted."""
    if task.tests:
        return {task.answer}
    return {" ".join(re.findall(r"\b[A-Z]{2,}\b|\d+", task.question))}


@given(seed=st.integers(0, 2**32), hard=st.booleans())
@settings(max_examples=12, deadline=None)
def test_every_task_keeps_the_promises(seed: int, hard: bool) -> None:
    suite = suite_of(seed, hard)
    tasks = suite.sample("train", 60)
    for part in SLICES:
        tasks += suite.evaluation(part, 30)
    for task in tasks:
        assert task.answer.lower() not in task.question.lower()
        assert len(task.answer) > 1
        assert task.answer not in task.guesses
        assert suite.task(task.key) == task
        for step in task.plan:
            body = ToolCall(step.tool, step.arguments).body()
            assert step.tool != "code" or len(shlex.split(json.loads(body)["code_command"])) == 3


def test_sampling_is_addressed() -> None:
    suite = suite_of()
    whole = suite.sample("train", 40, stream="a")
    assert suite_of().sample("train", 10, stream="a", start=30) == whole[30:]
    assert suite.sample("train", 40, stream="b") != whole
    assert suite_of(seed=1).sample("train", 40, stream="a") != whole
    assert suite.evaluation("new_seeds", 60)[:30] == suite.evaluation("new_seeds", 30)


@pytest.mark.parametrize("hard", [False, True])
def test_evaluation_asks_nothing_that_training_may_ask(hard: bool) -> None:
    suite = suite_of(hard=hard)
    train = suite.sample("train", 3000)
    asked: set[str] = set().union(*map(subject, train))
    names = {name for task in train for name in re.findall(r"\b[A-Z]{3,}\b", task.question)}
    for part in SLICES:
        tasks = suite.evaluation(part, 240)
        assert {task.slice for task in tasks} == {part}
        assert not asked & set().union(*map(subject, tasks))
        for task in tasks:
            if task.family in ("lookup", "lookup_compute", "absent"):
                assert not names & set(re.findall(r"\b[A-Z]{3,}\b", task.question))


def test_slices_are_disjoint_and_balanced() -> None:
    suite = suite_of()
    questions = {part: {task.question for task in suite.evaluation(part, 120)} for part in SLICES}
    for one in SLICES:
        for other in SLICES:
            assert one == other or not questions[one] & questions[other]
    families = [task.family for task in suite.evaluation("new_seeds", 120)]
    assert {families.count(name) for name in WORLDLY} == {20}


def test_a_held_template_is_seen_in_its_slice_only() -> None:
    suite = suite_of(hard=True)
    assert all("held" in task.template for task in suite.evaluation("unseen_template", 120))
    others = suite.sample("train", 300)
    for part in ("new_seeds", "unseen_composition", "unseen_length"):
        others += suite.evaluation(part, 60)
    assert all("train" in task.template for task in others)


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_are_several_and_held_words_occur_in_training(name: str) -> None:
    templates = TEMPLATES[name]
    assert len(set(templates.train)) >= 3
    assert templates.held
    assert not set(templates.held) & set(templates.train)
    words = {word for text in templates.train for word in re.findall(r"[a-z0-9]+", text)}
    assert {word for text in templates.held for word in re.findall(r"[a-z0-9]+", text)} <= words


def test_a_dial_of_sizes_is_drawn_by_weight() -> None:
    for sizes in (4, [4], {4: 1}):
        assert WorldSpec(name_length=sizes).name_length == {4: 1}
    spec = WorldSpec(entities=2000, name_length={3: 3, 5: 1})
    lengths = [len(name) for name in World(0, spec).names("train")]
    assert set(lengths) == {3, 5}
    assert 0.7 < lengths.count(3) / len(lengths) < 0.8


def test_a_composition_may_lie_between_the_trained_ones() -> None:
    suite = build_suite({"lookup_compute": FamilySpec(dials={"hops": [1, 2, 4], "composed_hops": 3})}, SMALL)
    assert {len(task.plan) for task in suite.evaluation("unseen_composition", 20)} == {4}
    assert {len(task.plan) for task in suite.sample("train", 60)} == {2, 3, 5}


def test_the_composition_is_longer_than_any_in_training() -> None:
    suite = suite_of()
    assert {tuple(step.tool for step in t.plan) for t in suite.evaluation("unseen_composition", 40)} == {
        ("web", "web", "code")
    }
    train = [t for t in suite.sample("train", 400) if t.family == "lookup_compute"]
    assert {tuple(step.tool for step in t.plan) for t in train} == {("web", "code")}


def test_unseen_lengths_are_longer() -> None:
    suite = suite_of()
    longest = max(len(run) for t in suite.sample("train", 500) for run in re.findall(r"[A-Z]+", t.question))
    for task in suite.evaluation("unseen_length", 60):
        runs = re.findall(r"[A-Z]{2,}", task.question)
        if runs:
            assert min(map(len, runs)) > longest
        else:
            assert min(map(len, re.findall(r"\d+", task.question))) > 2


def independent_answer(task: Task, suite: TaskSuite) -> str | None:
    """The gold answer again, from the question's text and the documents."""
    numbers = [int(run) for run in re.findall(r"\b\d+\b", task.question)]
    name = next(iter(re.findall(r"\b[A-Z]{2,}\b", task.question)), "")
    documents = dict(suite.documents())
    if task.family in ("lookup", "lookup_compute"):
        for _ in range(task.question.count("the owner of")):
            name = re.search(r"owner (\w+)\.", documents[name])[1]  # type: ignore[index]
        if task.template.startswith("owner"):
            return re.search(r"owner (\w+)\.", documents[name])[1]  # type: ignore[index]
        code = re.search(r"code (\d+)\.", documents[name])[1]  # type: ignore[index]
        if task.family == "lookup":
            return str(code)
        numbers = [int(code), *numbers]
    if task.family == "lookup_compute" or task.template.startswith("modpow"):
        base, exponent, modulus = numbers
        result = 1
        for _ in range(exponent):
            result = result * base % modulus
        return str(result)
    if task.template.startswith("hash_chain"):
        rounds = next(number for number in numbers if number != 6)
        text = name
        for _ in range(rounds):
            text = hashlib.sha256(text.encode()).hexdigest()
        return text[:6]
    if task.template.startswith("business_days"):
        days, *date = numbers
        day = datetime.date(*date)
        assert day + datetime.timedelta(days) < datetime.date.fromisoformat(task.answer)
        between = (
            day + datetime.timedelta(step)
            for step in range(1, (datetime.date.fromisoformat(task.answer) - day).days + 1)
        )
        assert sum(day.isoweekday() < 6 for day in between) == days
        return task.answer
    if task.template.startswith("grouped_sum"):
        group = re.search(r"sum of (\w)", task.question)[1]  # type: ignore[index]
        return str(sum(int(value) for label, value in re.findall(r"\b([A-Z])(\d+)\b", task.question) if label == group))
    if task.template.startswith("string_permutation"):
        *order, rounds = numbers
        places = list(range(len(name)))
        for _ in range(rounds):
            places = [places[place - 1] for place in order]
        return "".join(name[place] for place in places)
    return {"direct": name[::-1], "absent": "unknown"}.get(task.family)


def test_gold_answers_recomputed() -> None:
    suite = build_suite(
        {
            "lookup": FamilySpec(dials={"hops": [1, 2, 3]}),
            "compute": FamilySpec(weight=4, dials={"kinds": ALL_KINDS}),
            "lookup_compute": FamilySpec(),
            "direct": FamilySpec(),
            "absent": FamilySpec(),
        },
        SMALL,
    )
    tasks = suite.sample("train", 200) + suite.evaluation("unseen_composition", 20)
    for task in tasks:
        assert independent_answer(task, suite) == task.answer, task


def test_unit_tests_accept_gold_and_refuse_the_guess() -> None:
    suite = build_suite({"unit_tests": FamilySpec(dials=HARD["unit_tests"])}, SMALL)
    for task in suite.sample("train", 60):
        assert task.tests is not None
        exec(task.tests, {"answer": eval(task.answer)})
        for guess in task.guesses:
            with pytest.raises(AssertionError):
                exec(task.tests, {"answer": eval(guess)})


def test_quickstart_questions_are_short() -> None:
    for task in suite_of().sample("train", 500):
        assert len(task.question.split()) <= 14


def search(documents: list[tuple[str, str]], query: str, k: int) -> list[str]:
    """The corpus search in miniature: all words, the title weighted by 4."""
    with sqlite3.connect(":memory:") as index:
        index.execute("CREATE VIRTUAL TABLE page USING fts5(title, text, tokenize='porter')")
        index.executemany("INSERT INTO page VALUES (?, ?)", documents)
        rows = index.execute(
            "SELECT title FROM page WHERE page MATCH ? ORDER BY bm25(page, 4.0, 1.0) LIMIT ?", (f'"{query}"', k)
        )
        return [title for (title,) in rows]


@pytest.mark.parametrize("stale", [0.0, 1.0])
def test_a_name_finds_its_own_document_first(stale: float) -> None:
    spec = SMALL.model_copy(update={"stale": stale, "distractors": 1.0, "extra_attributes": 2})
    suite = suite_of(world=spec)
    documents = list(suite.documents())
    assert len(dict(documents)) >= len(suite.world.entities) * (1 + bool(stale))
    for pool in POOLS:
        for name in suite.world.names(pool)[:15]:
            assert search(documents, name, 1) == [name]
            assert bool(stale) == (f"{name} (old)" in search(documents, name, spec.k + 2))
    for task in suite.sample("train", 200):
        if task.family == "absent":
            assert search(documents, task.plan[0].arguments["q"], 10) == []


@pytest.mark.parametrize(
    ("families", "world", "said"),
    [
        ({"lokup": {}}, {}, "lokup"),
        ({"lookup": {"dials": {"hop": 2}}}, {}, "hop"),
        ({"lookup": {"dials": {"hops": 7}}}, {}, "hops"),
        ({"lookup_compute": {"dials": {"hops": [1, 2], "composed_hops": 2}}}, {}, "composed_hops"),
        ({"compute": {"dials": {"modulus_digits": 1}}}, {}, "modulus_digits"),
        ({"lookup": {}}, {"entities": 300, "name_length": 2}, "name"),
    ],
)
def test_a_wrong_dial_is_named(families: dict[str, Any], world: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build_suite({name: FamilySpec(**spec) for name, spec in families.items()}, WorldSpec(**world))


def test_a_family_may_stand_twice_in_a_mix() -> None:
    mix = {"one_hop": FamilySpec(kind="lookup", dials={"hops": 1}), "two_hops": FamilySpec(kind="lookup", weight=3)}
    counts = [task.family for task in build_suite(mix, SMALL).sample("train", 400)]
    assert 0.65 < counts.count("two_hops") / 400 < 0.85
