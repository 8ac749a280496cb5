"""The two errors that end a command with one line instead of a traceback.

Anything else that escapes is a fault of ours and keeps its traceback.
"""


class CallwrightError(Exception):
    """Base of both. ``exit_code`` is what the command line answers; the message is one line, written for its reader."""

    exit_code = 1


class UserError(CallwrightError):
    """The input is wrong (a config key, a path, a flag). The message says what and the mend."""

    exit_code = 2


class RunError(CallwrightError):
    """The run failed. The message says what and where the record is."""

    exit_code = 1
