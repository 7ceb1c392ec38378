#!/bin/sh
# Builds the environments that the fixtures and the golden answers are made in, under the folder given (by default .venvs):
#   original        Python 3.9, mindspore 2.0.0, mindinsight 2.0.0   (dumps of 2.0.0, golden answers)
#   original-2.3    Python 3.9, mindspore 2.0.0, mindinsight 2.3.1   (golden answers about statistic.csv)
#   mindspore-2.10  Python 3.10 - 3.12, mindspore 2.10.0             (dumps of 2.10.0)
# Usage: make_env.sh [FOLDER] [NAME...]; an environment that is complete is left as it is.
set -eu

folder=${1:-.venvs}
[ $# -gt 0 ] && shift
names=${*:-original original-2.3 mindspore-2.10}

# Prints a python of one of the versions asked for: on PATH, else pyenv's.
find_python() {
    for version in "$@"; do
        if command -v "python$version" >/dev/null 2>&1 && "python$version" -c "import venv" 2>/dev/null; then
            command -v "python$version"
            return
        fi
        for candidate in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python; do
            if [ -x "$candidate" ]; then
                echo "$candidate"
                return
            fi
        done
    done
    echo "No Python of version $* found; install one (for example: pyenv install $1) or put it on PATH." >&2
    exit 1
}

# build NAME PYTHON REQUIREMENT...
build() {
    target=$folder/$1
    python=$2
    shift 2
    [ -e "$target/complete" ] && return
    rm -rf "$target"
    "$python" -m venv "$target"
    "$target/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
    touch "$target/complete"
}

# What mindinsight 2.x needs beyond its own requirements to start on a system of today.
old="numpy<1.24 pillow<10 flask==2.1.3 werkzeug==2.1.2 scipy<1.12 setuptools<70 pandas openpyxl"
mkdir -p "$folder"
for name in $names; do
    case $name in
    # shellcheck disable=SC2086 # the requirements are words
    original) build original "$(find_python 3.9)" mindspore==2.0.0 mindinsight==2.0.0 $old ;;
    # shellcheck disable=SC2086
    original-2.3) build original-2.3 "$(find_python 3.9)" mindspore==2.0.0 mindinsight==2.3.1 $old ;;
    mindspore-2.10) build mindspore-2.10 "$(find_python 3.11 3.10 3.12)" mindspore==2.10.0 ;;
    *) echo "Unknown environment $name" >&2; exit 2 ;;
    esac
done
