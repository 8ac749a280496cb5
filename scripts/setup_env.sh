#!/usr/bin/env bash
# Make .venv from the one lock (constraints.txt) and install what the sandbox needs. Safe to repeat.
#   CALLWRIGHT_TORCH=cuda   install the CUDA build of torch (a GPU machine)
#   CALLWRIGHT_TORCH=cpu    force the CPU build; unset: the CPU build, unless a fitting torch is there already
#   PYTHON=/path/python3    the interpreter to build .venv from
set -euo pipefail
cd "$(dirname "$0")/.."

TORCH=2.13.0
CPU_INDEX=https://download.pytorch.org/whl/cpu
flavour=${CALLWRIGHT_TORCH:-}

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 2; }

find_python() {
    local candidate found=""
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
        found="; $candidate is $("$candidate" -V 2>&1 | tail -n 1)"
    done
    die "callwright needs Python 3.11 or newer$found. Install one, or name it: PYTHON=/path/to/python3.11 make quickstart"
}

# Debian packages: install them as root, otherwise say the one line that does and stop.
system_packages() {
    local missing=()
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=("$(debian_venv_package)")
    if [[ $(uname -s) == Linux ]]; then
        command -v bwrap >/dev/null || missing+=(bubblewrap)
    else
        say "no bubblewrap on $(uname -s): the code tool has no sandbox here (executors.code.sandbox=none runs it bare)"
    fi
    [[ ${#missing[@]} -eq 0 ]] && return
    command -v apt-get >/dev/null || die "please install ${missing[*]} with your package manager, then run make again"
    [[ $(id -u) -eq 0 ]] ||
        die "please run: sudo apt-get update && sudo apt-get install -y ${missing[*]}   and then make again"
    say "installing ${missing[*]}"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } \
        </dev/null >&2 || die "apt-get could not install ${missing[*]}: its message is above"
}

debian_venv_package() {
    "$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'
}

# The sandbox's own probe, as a run would start it: better said now than at the first tool call.
check_sandbox() {
    [[ $(uname -s) == Linux ]] || return 0
    .venv/bin/python -m callwright.envs.executors.sandbox >&2 || say "the code tool has no sandbox here: docs/sandbox.md"
}

pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }
locked() { pip install -qq --constraint constraints.txt "$@" >&2; }

# What .venv has: "none", "cpu" (also a plain build without CUDA), "cuda", or "other" for another release.
installed_torch() {
    .venv/bin/python - "$TORCH" <<'PY'
import importlib.metadata as metadata
import sys

try:
    release, _, local = metadata.version("torch").partition("+")
except metadata.PackageNotFoundError:
    print("none")
else:
    requires = metadata.requires("torch") or []
    cuda = local.startswith("cu") or (local != "cpu" and any(line.startswith(("nvidia-", "cuda-")) for line in requires))
    print("other" if release != sys.argv[1] else "cuda" if cuda else "cpu")
PY
}

# Without dependencies: they come from the lock afterwards, and the CPU index need not carry them.
install_torch() {
    local have
    have=$(installed_torch)
    if [[ $have == "${flavour:-cpu}" || ( -z $flavour && $have == cuda ) ]]; then return; fi
    [[ $have == none ]] || pip uninstall -qq --yes torch >&2
    if [[ $flavour == cuda || $(uname -s) == Darwin ]]; then
        locked "torch==$TORCH"
        return
    fi
    command -v nvidia-smi >/dev/null && say "there is an NVIDIA GPU: CALLWRIGHT_TORCH=cuda make quickstart uses it"
    pip install -qq --no-deps "torch==$TORCH+cpu" >/dev/null 2>&1 && return
    pip install -qq --no-deps --index-url "$CPU_INDEX" "torch==$TORCH+cpu" >/dev/null 2>&1 && return
    [[ $(uname -m) == x86_64 ]] &&
        die "no CPU build of torch $TORCH within reach ($CPU_INDEX); CALLWRIGHT_TORCH=cuda takes the CUDA build instead"
    locked "torch==$TORCH"
}

[[ -z $flavour || $flavour == cpu || $flavour == cuda ]] || die "CALLWRIGHT_TORCH=$flavour: say cpu or cuda"
python=$(find_python) || exit 2
system_packages
if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    say "making .venv with $("$python" -V)"
    "$python" -m venv --clear .venv
fi
say "installing from constraints.txt (a minute or two the first time)"
install_torch
# The build backend comes from the lock too, so that nothing at all is unpinned.
locked hatchling editables
locked --no-build-isolation --editable '.[train,serve,web,servicebus,eval,dev]'
# Only tests need it, and it has no wheel: where it cannot be built they skip, and say so.
pip install -qq --constraint constraints.txt python-qpid-proton >/dev/null 2>&1 ||
    say "python-qpid-proton was not built (it needs a C compiler and libssl-dev): the Service Bus tests will skip"
check_sandbox
rm -f .venv/.ready*
touch .venv/.ready ".venv/.ready${flavour:+-$flavour}"
say "ready"
