"""bfcl-eval's own AST checker, in a process of its own: its package holds code that evaluates text.

The checker takes from the table of models one thing alone, whether dots in function names became underscores. That
table imports every vendor's library, so a table of one answer stands in for it, and the package needs no dependency.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from types import ModuleType, SimpleNamespace

from callwright.envs.rewards.judge import Question, serve_questions


def verdict(question: Question) -> bool:
    """Whether ``calls``, as ``[{name: arguments}]``, are ``accepted`` for the ``functions`` in this ``category``."""
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker

    found = ast_checker(
        question["functions"], question["calls"], question["accepted"], Language.PYTHON, question["category"], "any"
    )
    return bool(found["valid"])


def _stand_in() -> None:
    table = ModuleType("bfcl_eval.constants.model_config")
    answer = SimpleNamespace(underscore_to_dot=True)
    table.__dict__["MODEL_CONFIG_MAPPING"] = defaultdict(lambda: answer)
    sys.modules[table.__name__] = table


if __name__ == "__main__":
    _stand_in()
    import bfcl_eval.eval_checker.ast_eval.ast_checker  # noqa: F401  not at the first question's expense

    serve_questions(verdict)
