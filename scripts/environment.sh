# Sourced by the other scripts: finds a Python and keeps an environment in step with
# pyproject.toml. Safe to run again, at the same time, and after an interruption.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# use_environment NAME: .venv has Relay's TVM, .venv-relax today's. No environment can have both.
use_environment() {
    VENV=$ROOT/$1
    VENV_PYTHON=$VENV/bin/python
    UNFINISHED=$VENV-unfinished # stays behind when making or filling it was interrupted
}
use_environment .venv

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

# Prints nothing and succeeds for a Python that will do; else prints what is wrong with it.
judge_python() {
    "$1" - <<'PROBE' 2>/dev/null || echo "does not start"
import platform
import struct
import sys

version = sys.version_info[:2]
wrong = None
if version < (3, 10):
    wrong = "is Python %d.%d, too old" % version
elif version >= (3, 15):
    wrong = "is Python %d.%d, too new: not supported yet" % version
elif struct.calcsize("P") != 8:
    wrong = "is a 32-bit Python"
elif platform.libc_ver()[0] != "glibc":
    wrong = "is not built for glibc, which TVM's wheels need"
else:
    for module in ("venv", "ensurepip"):
        try:
            __import__(module)
        except ImportError:
            wrong = "has no module %s (Debian and Ubuntu: apt install python3-venv)" % module
if wrong:
    print(wrong)
PROBE
}

# Sets PYTHON. Respects a PYTHON from outside.
find_python() {
    local candidate complaint complaints=()
    local candidates=(python3 python3.14 python3.13 python3.12 python3.11 python3.10 python)
    if [ -n "${PYTHON:-}" ]; then
        candidates=("$PYTHON")
    fi
    for candidate in "${candidates[@]}"; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        complaint=$(judge_python "$candidate")
        if [ -z "$complaint" ]; then
            PYTHON=$candidate
            return
        fi
        complaints+=("  $candidate $complaint")
    done
    if [ ${#complaints[@]} -eq 0 ]; then
        complaints=("  none of: ${candidates[*]}")
    fi
    fail "tvm-npu needs Python 3.10 to 3.14 with venv and pip. Found:" "${complaints[@]}" \
        "Set PYTHON to the one to use."
}

venv_is_usable() {
    [ -z "$(judge_python "$VENV_PYTHON")" ] && "$VENV_PYTHON" -c 'import pip' 2>/dev/null
}

# What an installation depends on: place, dependencies, interpreter.
fingerprint() {
    "$VENV_PYTHON" - "$ROOT" <<'PROBE'
import hashlib
import pathlib
import sys

root = pathlib.Path(sys.argv[1])
state = hashlib.sha256(repr((str(root), sys.version)).encode())
for name in ("pyproject.toml", "setup.py"):
    state.update((root / name).read_bytes())
print(state.hexdigest())
PROBE
}

# ensure_environment EXTRA...: an environment with this checkout (editable) and the extras.
ensure_environment() {
    local extras wanted installed
    case " $* " in
    *" relax "*) use_environment .venv-relax ;;
    *) use_environment .venv ;;
    esac
    if [ "$(uname -s)" != Linux ] || [ "$(uname -m)" != x86_64 ]; then
        fail "tvm-npu runs on Linux x86-64; this is $(uname -s) $(uname -m)."
    fi
    exec 9<"$ROOT"
    if command -v flock >/dev/null 2>&1; then
        flock 9
    fi

    if [ -e "$UNFINISHED" ] || ! venv_is_usable; then
        if [ -e "$VENV" ] && ! [ -e "$UNFINISHED" ] && ! [ -e "$VENV/installed" ]; then
            fail "$VENV exists, was not made by this script, and has no pip or no Python 3.10 to" \
                "3.14. Move it away and run this again."
        fi
        find_python
        echo "Making ${VENV##*/} with $("$PYTHON" -V) ..."
        mkdir -p "$UNFINISHED"
        if ! "$PYTHON" -m venv --clear "$VENV"; then
            fail "Cannot make $VENV: is the disk full, or is python3-venv missing?"
        fi
    fi

    extras=$(IFS=,; echo "$*")
    wanted="$(fingerprint) $extras"
    installed=$(cat "$VENV/installed" 2>/dev/null || true)
    if [ "${installed%% *}" != "${wanted%% *}" ] || ! covers "${installed#* }" "$@"; then
        echo "Installing tvm-npu[$extras] into ${VENV##*/} (some minutes and 1 GB the first time) ..."
        rm -f "$VENV/installed"
        mkdir -p "$UNFINISHED"
        # pip's own words go to a file: they name package indexes, which is nobody's business.
        if ! "$VENV_PYTHON" -m pip install --no-input --disable-pip-version-check \
            --progress-bar off -e "$ROOT[$extras]" >"$VENV/pip.log" 2>&1; then
            grep -E '^ERROR' "$VENV/pip.log" | sed -E 's#[a-z]+://[^ ]*#...#g' >&2 || true
            fail "The installation failed; $VENV/pip.log says more. Run this again to start over."
        fi
        echo "$wanted" >"$VENV/installed"
    fi
    rm -rf "$UNFINISHED"
    exec 9<&-
}

# covers "a,b" b: are all extras that follow in the list?
covers() {
    local list=,$1, extra
    shift
    for extra in "$@"; do
        [[ $list == *,$extra,* ]] || return 1
    done
}

# package_tree FOLDER: the four folders as the one package that they are, for tools that read sources.
package_tree() {
    rm -rf "$1"
    mkdir -p "$1/tvm_npu"
    ln -s "$ROOT"/tvm_npu/* "$ROOT/codegen" "$ROOT/runtime" "$ROOT/sim" "$1/tvm_npu/"
}

# study NAME "EXTRA ..." ARGUMENT...: runs a benchmark or a reproduction of scripts/studies with these
# extras installed, and with what drawings need where the arguments ask for one.
study() {
    local name=$1 extras argument
    read -ra extras <<<"$2"
    shift 2
    for argument in "$@"; do
        case $argument in
        --pl | --plo | --plot | --pl=* | --plo=* | --plot=*)
            extras+=(plot)
            break
            ;;
        esac
    done
    ensure_environment "${extras[@]}"
    # Files are named from where the caller stands; study.py finds the studies beside itself.
    exec "$VENV_PYTHON" -W ignore "$ROOT/scripts/study.py" "$name" "$@"
}
