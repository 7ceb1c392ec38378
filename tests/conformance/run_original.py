"""Records what the original answers: `python run_original.py --fixtures tests/fixtures --golden tests/conformance/golden`.

Runs in the environment that make_env.sh builds (Python 3.9, mindspore 2.0.0, mindinsight 2.0.0). It unpacks the committed dumps of
MindSpore 2.0.0, builds the hand-made ones from them, asks the original everything in settings.py and writes one compressed file of golden
answers per dump. Each answer is recorded twice, from two instances, and must be the same.
"""

import argparse
import gzip
import json
import os
import sys
import tarfile
import tempfile
from types import SimpleNamespace

from plan import plan
from recording import Recorder
from synthetic import build


def original():
    os.environ["GLOG_v"] = "4"  # the C++ checker prints a warning for every tensor it does not find
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
                tar.extractall(target)
        else:
            build(name, open_dump("sick-2.0.0", fixtures, folder), target)
    return target


def record(dump, sections):
    with tempfile.TemporaryDirectory() as scratch:
        recorder = Recorder(original(), dump, scratch)
        return {section: recorder.record(section) for section in sections}


def write(path, answers):
    """Compressed JSON, one section per line, without a time stamp: the same answers give the same bytes."""
    lines = ",\n".join(f"{json.dumps(section)}: {json.dumps(answer)}" for section, answer in answers.items())
    with open(path, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", compresslevel=9, mtime=0, filename="") as packed:
        packed.write(("{\n" + lines + "\n}\n").encode())
    print(os.path.basename(path), len(answers), "sections", os.path.getsize(path) // 1024, "kB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fixtures", required=True)
    parser.add_argument("--golden", required=True)
    parser.add_argument("dumps", nargs="*", help="only these dumps")
    arguments = parser.parse_args()
    os.makedirs(arguments.golden, exist_ok=True)
    unstable = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, sections in plan().items():
            if arguments.dumps and name not in arguments.dumps:
                continue
            dump = open_dump(name, arguments.fixtures, folder)
            answers = record(dump, sections)
            again = record(dump, sections)
            different = [section for section in sections if json.dumps(answers[section]) != json.dumps(again[section])]
            if different:
                unstable += 1
                print(name, "answers differently the second time:", different, file=sys.stderr)
            write(os.path.join(arguments.golden, name + ".json.gz"), answers)
    return 1 if unstable else 0


if __name__ == "__main__":
    sys.exit(main())
