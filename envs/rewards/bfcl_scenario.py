"""bfcl-eval's simulated services and its multi-turn checker, in a process of their own: it runs calls by ``eval``.

Invariant: a question brings all calls from the beginning, and nothing of an earlier question is left, so that a process
that was killed loses nothing.
"""

from __future__ import annotations

from typing import Any

from callwright.envs.rewards.judge import Question, serve_questions


def answer(question: Question) -> Any:
    """With ``accepted``: whether the calls of all ``turns`` leave the services ``classes``, which begin as ``begins``
    has it, as the accepted ones do. Without: what each call returned. A call is a text, ``name(argument='value')``."""
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

    _forget(multi_turn_utils.__dict__)
    turns, classes, begins = question["turns"], question["classes"], question["begins"]
    if question.get("accepted") is None:
        calls = [call for turn in turns for call in turn]
        results, _ = multi_turn_utils.execute_multi_turn_func_call(calls, begins, classes, "policy", question["id"])
        return results
    if len(turns) != len(question["accepted"]):
        return False
    entry = {"id": question["id"], "initial_config": begins, "involved_classes": classes}
    steps = [[turn] for turn in turns]  # the calls of a turn as one step: the checker joins steps anyway
    return bool(multi_turn_checker(steps, question["accepted"], entry, "", "policy")["valid"])


def _forget(namespace: dict[str, Any]) -> None:
    """The checker keeps its services as globals."""
    for name in [name for name in namespace if name.endswith("_instance")]:
        del namespace[name]


if __name__ == "__main__":
    import bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker  # noqa: F401  not at the first question's expense

    serve_questions(answer)
