#!/usr/bin/env bash
# Make .adapters, the environment in which the adapters meet their frameworks (make adapters). Safe to repeat.
# It lies over .venv: what is locked there is used from there, and only what a framework refuses is installed beside it
# (inspect-ai wants an older fsspec, verifiers an older openai), so that the lock itself never moves.
set -euo pipefail
cd "$(dirname "$0")/.."

FRAMEWORKS=(inspect-ai==0.3.285 lm-eval==0.4.13 verifiers==0.4.0)
REFUSED='^(fsspec|openai)=='
HOME_FOLDER=.adapters
MARK="${FRAMEWORKS[*]}"

say() { echo "adapters: $*" >&2; }

if [[ -f $HOME_FOLDER/.ready && $(<"$HOME_FOLDER/.ready") == "$MARK" ]]; then
    exit 0
fi
say "installing $MARK"
.venv/bin/python -m venv --clear "$HOME_FOLDER"
own=$("$HOME_FOLDER/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
locked=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\n%s\n' "$PWD/src" "$locked" >"$own/under.pth"
grep -Ev "$REFUSED" constraints.txt >"$HOME_FOLDER/constraints.txt"
"$HOME_FOLDER/bin/python" -m pip --disable-pip-version-check install -qq \
    --constraint "$HOME_FOLDER/constraints.txt" "${FRAMEWORKS[@]}" >&2
echo "$MARK" >"$HOME_FOLDER/.ready"
say "ready"
