#!/usr/bin/env bash
# Install what the azure tool runs, apart from .venv: the Azure CLI and the Azurite emulator (make azure). Safe to
# repeat: what is there in the right version stays.
#   .azure-tools/cli       a virtual environment of its own: the CLI pins some hundred packages
#   .azure-tools/azurite   npm's folder
set -euo pipefail
cd "$(dirname "$0")/.."

CLI=2.91.0
AZURITE=3.35.0 # the last that runs on Node 20; later ones want Node 22
HOME_FOLDER=.azure-tools

say() { echo "azure: $*" >&2; }
die() { say "$*"; exit 2; }

need_node() {
    local run=(apt-get install -y nodejs npm)
    [[ $(id -u) -eq 0 ]] || run=(sudo "${run[@]}")
    command -v node >/dev/null && command -v npm >/dev/null ||
        die "Azurite needs Node.js 20 or newer and npm; run: ${run[*]}   and then make azure again"
    node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 20 ? 1 : 0)' ||
        die "Azurite needs Node.js 20 or newer; $(command -v node) is $(node --version): put a newer one first on the PATH"
}

# What a folder holds is complete when its mark names the version.
is_ready() { [[ -f $HOME_FOLDER/$1/.ready && $(<"$HOME_FOLDER/$1/.ready") == "$2" ]]; }
mark() { echo "$2" >"$HOME_FOLDER/$1/.ready"; }

need_node
if ! is_ready cli "$CLI"; then
    say "installing azure-cli $CLI (some 730 MB, a minute or two)"
    .venv/bin/python -m venv --clear "$HOME_FOLDER/cli"
    "$HOME_FOLDER/cli/bin/python" -m pip --disable-pip-version-check install -qq "azure-cli==$CLI" >&2
    mark cli "$CLI"
fi
if ! is_ready azurite "$AZURITE"; then
    say "installing azurite $AZURITE (some 190 MB)"
    npm install --silent --no-audit --no-fund --no-save --prefix "$HOME_FOLDER/azurite" "azurite@$AZURITE" >&2
    mark azurite "$AZURITE"
fi
say "ready"
