"""The token: made once, for its owner's eyes, and never taken from a file that holds none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensight.errors import InputError
from tensight.server.access_token import access_token


def test_a_token_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    first, second = access_token(tmp_path / "token"), access_token(tmp_path / "token")
    assert (first.new, second.new) == (True, False)
    assert first.text == second.text
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert access_token(tmp_path / "other").text != first.text


def test_a_token_that_others_could_read_is_closed_to_them_and_said(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("correct-horse-battery\n")
    file.chmod(0o644)
    assert access_token(file).was_open
    assert file.stat().st_mode & 0o777 == 0o600
    assert not access_token(file).was_open


def test_a_token_is_not_shown_by_accident(tmp_path: Path) -> None:
    token = access_token(tmp_path / "token")
    assert token.text not in repr(token)


def test_a_token_of_the_person_is_taken(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("correct-horse-battery\n")
    assert access_token(tmp_path / "token").text == "correct-horse-battery"


@pytest.mark.parametrize("content", ["", "\n", "short", "two words of some length", "ä" * 20, "x" * 2000])
def test_a_file_without_a_usable_token_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(InputError, match="contains no token: give 16 to 1024 printable ASCII characters") as caught:
        access_token(tmp_path / "token")
    assert not content.strip() or content.strip() not in str(caught.value)


def test_a_file_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the token file .* cannot be used: No such file or directory"):
        access_token(tmp_path / "missing" / "token")
