"""Records what the original answers.

    python run_original.py --fixtures tests/fixtures --golden tests/conformance/golden

Runs in the environments that make_env.sh builds: Python 3.9, mindspore 2.0.0, and mindinsight 2.0.0 for everything
but statistic.csv, mindinsight 2.3.1 for that (the two methods came with 2.2). It unpacks the committed dumps of
MindSpore 2.0.0, builds the hand-made ones from them, asks the original everything in settings.py and writes one
compressed file of golden answers per dump. Each dump is asked about in two processes with different hash seeds, which
must give the same answers.
"""

import argparse
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
from types import SimpleNamespace

from plan import plan
from recording import Recorder
from synthetic import build


def has_statistics():
    import mindinsight

    return not mindinsight.__version__.startswith("2.0")


def sort_directories():
    """Make pathlib list directories by name: the original takes graphs in the file system's order, that is, any."""
    for name in ("iterdir", "glob"):
        unsorted = getattr(pathlib.Path, name)
        setattr(pathlib.Path, name, lambda *arguments, listed=unsorted: iter(sorted(listed(*arguments))))


def original():
    import mindinsight

    sort_directories()
    if has_statistics():
        # The mindspore that this mindinsight wants is not published for Python 3.9; reading a csv file needs none.
        mindinsight.__version__ = "2.0.0"
    import mindinsight.debugger
    from mindinsight.parser.dump import DumpParser

    names = {name: getattr(mindinsight.debugger, name) for name in mindinsight.debugger.__all__}
    return SimpleNamespace(DumpParser=DumpParser, **names)


def open_dump(name, fixtures, folder):
    """Folder of a committed or hand-made dump, made on first use."""
    target = os.path.join(folder, name)
    if not os.path.isdir(target):
        archive = os.path.join(fixtures, name + ".tar.xz")
        if os.path.exists(archive):
            with tarfile.open(archive) as tar:
                tar.extractall(target)  # noqa: S202 - our own archives
        else:
            build(name, open_dump("sick-2.0.0", fixtures, folder), target)
    return target


def record(dump, sections):
    """{section: answer} in this process."""
    with tempfile.TemporaryDirectory() as scratch:
        recorder = Recorder(original(), dump, scratch)
        return {section: recorder.record(section) for section in sections}


def record_apart(name, dump, seed):
    """The same in a process of its own, without the C++ checker's warning for every tensor that it does not find."""
    call = [sys.executable, os.path.abspath(__file__), "--child", dump, name]
    done = subprocess.run(
        call, env=dict(os.environ, PYTHONHASHSEED=str(seed), GLOG_v="4"), check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout.decode().splitlines()[-1])


def write(path, answers):
    """Compressed JSON, one section per line, without a time stamp: the same answers give the same bytes."""
    lines = ",\n".join(f"{json.dumps(section)}: {json.dumps(answer)}" for section, answer in answers.items())
    with (
        open(path, "wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=9, mtime=0, filename="") as packed,
    ):
        packed.write(("{\n" + lines + "\n}\n").encode())
    print(os.path.basename(path), len(answers), "sections", os.path.getsize(path) // 1024, "kB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fixtures", help="folder of the committed dumps")
    parser.add_argument("--golden", help="folder to write to")
    parser.add_argument("--child", help="folder of one dump: print its answers and stop")
    parser.add_argument("dumps", nargs="*", help="only these dumps")
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(record(arguments.child, plan()[arguments.dumps[0]])))
        return 0
    os.makedirs(arguments.golden, exist_ok=True)
    asked = [name for name in plan() if (name == "statistics") == has_statistics()]
    unstable = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.dumps or asked:
            dump = open_dump(name, arguments.fixtures, folder)
            answers, again = (record_apart(name, dump, seed) for seed in (1, 2))
            unstable += [
                f"{name}: {section}"
                for section in answers
                if json.dumps(answers[section]) != json.dumps(again[section])
            ]
            write(os.path.join(arguments.golden, name + ".json.gz"), answers)
    print(
        "\n".join(["answers that differ from process to process:", *unstable] if unstable else ["all answers repeat"])
    )
    return 1 if unstable else 0


if __name__ == "__main__":
    sys.exit(main())
