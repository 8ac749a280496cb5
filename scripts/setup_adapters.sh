#!/usr/bin/env bash
# Make .adapters, the environment in which the adapters meet their frameworks (make adapters). Safe to repeat.
# It lies over .venv: what is locked there is used from there, and only what a framework refuses is installed beside it
# (inspect-ai wants an older fsspec, verifiers an older openai), so that the lock itself never moves.
set -euo pipefail
cd "$(dirname "$0")/.."

HOME_FOLDER=.adapters
LOCK=scripts/adapters.txt

say() { echo "adapters: $*" >&2; }

if cmp -s "$LOCK" "$HOME_FOLDER/.ready"; then
    exit 0
fi
say "installing inspect-ai, lm-eval and verifiers (some 300 MB)"
.venv/bin/python -m venv --clear "$HOME_FOLDER"
own=$("$HOME_FOLDER/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
locked=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\n%s\n' "$PWD/src" "$locked" >"$own/under.pth"
"$HOME_FOLDER/bin/python" -m pip --disable-pip-version-check install -qq --no-deps --requirement "$LOCK" >&2
cp "$LOCK" "$HOME_FOLDER/.ready"
say "ready"
