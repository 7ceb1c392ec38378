"""What `tensight --version` says of an installation."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import build_commit
from tensight.installations import COMMIT_FILE, commit_of, described
from tensight.version import __version__


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    return subprocess.run(
        ["git", "-C", folder, *who, *words], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "src" / "tensight").mkdir(parents=True)
    (tmp_path / "src" / "tensight" / "code.py").write_text("")
    (tmp_path / ".gitignore").write_text(f"{build_commit.COMMIT.as_posix()}\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def package(root: Path) -> str:
    return str(root / "src" / "tensight")


def test_a_line_says_version_and_kernels() -> None:
    assert re.fullmatch(
        rf"tensight {re.escape(__version__)}(, commit [0-9a-f]{{7,}}(-dirty)?)?, kernels: .+", described("tensight")
    )


def test_a_checkout_is_asked_for_its_commit(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    found = commit_of(package(checkout))
    assert len(found) >= 7
    assert commit.startswith(found)
    (checkout / "src" / "tensight" / "code.py").write_text("changed = True\n")
    assert commit_of(package(checkout)) == f"{found}-dirty"


def test_a_package_carries_the_commit_that_it_was_built_of(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    commit = commit_of(package(checkout))
    (written,) = build_commit.write(checkout)
    assert written == checkout / build_commit.COMMIT
    installed = tmp_path_factory.mktemp("site-packages") / "tensight"
    installed.mkdir()
    assert commit_of(str(installed)) == ""
    (installed / COMMIT_FILE).write_bytes(written.read_bytes())
    assert commit_of(str(installed)) == commit
    git(checkout, "commit", "--quiet", "--allow-empty", "--message", "second")
    (again,) = build_commit.write(checkout)
    assert again.read_text().strip() not in ("", commit)


def test_the_sources_of_a_release_keep_the_commit_that_they_carry(tmp_path: Path) -> None:
    assert build_commit.write(tmp_path) == []
    carried = tmp_path / build_commit.COMMIT
    carried.parent.mkdir(parents=True)
    carried.write_text("1234567\n")
    assert build_commit.write(tmp_path) == [carried]
    assert carried.read_text() == "1234567\n"
    assert commit_of(package(tmp_path)) == "1234567"
