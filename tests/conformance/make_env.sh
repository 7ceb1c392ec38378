#!/bin/sh
# Builds environments of other versions than the project's own, under the folder given (by default .venvs): those that the
# fixtures and the golden answers are made in, and those in which trainings on MindSpore are debugged, with Tensight itself:
#   original        Python 3.9, mindspore 2.0.0, mindinsight 2.0.0   (dumps of 2.0.0, golden answers)
#   original-2.3    Python 3.9, mindspore 2.0.0, mindinsight 2.3.1   (golden answers about statistic.csv)
#   mindspore-2.10  Python 3.10 - 3.12, mindspore 2.10.0, tensight   (dumps of 2.10.0, live trainings)
#   mindspore-2.7   Python 3.10 - 3.11, mindspore 2.7.0, tensight    (live trainings)
# Usage: make_env.sh [FOLDER] [NAME...]; an environment that is complete is left as it is. Exits with 3 where there is no
# Python that one of them needs.
set -eu

folder=${1:-.venvs}
[ $# -gt 0 ] && shift
names=${*:-original original-2.3 mindspore-2.10 mindspore-2.7}
project=$(cd "$(dirname "$0")/../.." && pwd)
uv=$project/.venv/bin/uv # by make

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
    exit 3
}

# build NAME PYTHON REQUIREMENT...; PYTHON: the versions that will do, the best first.
build() {
    target=$folder/$1
    versions=$2
    shift 2
    [ -e "$target/complete" ] && return
    # shellcheck disable=SC2086 # the versions are words
    python=$(find_python $versions) || exit $?
    echo "Building the environment $target (once, about a minute) ..."
    rm -rf "$target"
    "$uv" venv --quiet --seed --python "$python" "$target"
    "$uv" pip install --quiet --python "$target" "$@"
    # Of thousands of files few are ever imported; those are compiled here, and not by several tests at once.
    "$target/bin/python" -c "import mindspore" >/dev/null
    touch "$target/complete"
}

# build_with_project NAME PYTHON REQUIREMENT...: with Tensight as it is in this checkout.
build_with_project() {
    build "$@"
    # Another checkout may use the same folder of environments.
    [ "$project/pyproject.toml" -ot "$folder/$1/project" ] && [ "$(cat "$folder/$1/project")" = "$project" ] && return
    target=$folder/$1
    shift 2
    "$uv" pip install --quiet --python "$target" "$@" --editable "$project"
    echo "$project" > "$target/project"
}

# What mindinsight 2.x needs beyond its own requirements to start on a system of today.
old="numpy<1.24 pillow<10 flask==2.1.3 werkzeug==2.1.2 scipy<1.12 setuptools<70 pandas openpyxl"
# MindSpore 2.10 accepts NumPy 2, with which its own GeneratorDataset fails ("Unable to avoid copy").
mkdir -p "$folder"
for name in $names; do
    # shellcheck disable=SC2086 # the requirements are words
    case $name in
    original) build original 3.9 mindspore==2.0.0 mindinsight==2.0.0 $old ;;
    original-2.3) build original-2.3 3.9 mindspore==2.0.0 mindinsight==2.3.1 $old ;;
    mindspore-2.10) build_with_project mindspore-2.10 "3.11 3.10 3.12" mindspore==2.10.0 "numpy<2" ;;
    mindspore-2.7) build_with_project mindspore-2.7 "3.11 3.10" mindspore==2.7.0 ;;
    *) echo "Unknown environment $name" >&2; exit 2 ;;
    esac
done
