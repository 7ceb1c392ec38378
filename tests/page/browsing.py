"""Chromium with the page in it, for tests that use the page as a person does; and what there is to look at."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

import tensight
from tensight.client import WaitError
from tests.processes.forked import PYTORCH, popen
from tests.server.running import RunningServer

SCENARIOS = Path(tensight.__file__).parent / "scenarios"
TRANSFORMER = Path(__file__).with_name("transformer.py")
UNLEARNED = Path(__file__).with_name("unlearned.py")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    # The tests may run as root, in a container without a graphics card, and reach nothing but this machine.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SMALL = (1280, 800)
LARGE = (1920, 1080)
WITHIN_S = 60.0
ATTACH_WITHIN_S = 120.0
LOOK_EVERY_S = 0.5

# Cores are shared with other tests, with trainings and servers.
expect.set_options(timeout=WITHIN_S * 1000)


def browser_program() -> str:
    """Return the path of the system's Chromium.

    Raises
    ------
    FileNotFoundError
        There is none; Playwright's own download is no substitute, for it needs the network.
    """
    for name in BROWSERS:
        if program := shutil.which(name):
            return program
    raise FileNotFoundError("no Chromium is on the path: `make test` installs it on Debian as root, or says how")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Give a browser.

    While it is there, this thread cannot run an event loop of its own: Playwright has one. So it must not be kept
    longer than for the tests of one module.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_program(), args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Complaints:
    """What the browser says went wrong in a page.

    Attributes
    ----------
    allowed : tuple of str
        Regular expressions of what a test brings about itself, such as a lost connection. Each is searched in the
        message and the address that it is about.
    """

    allowed: tuple[str, ...] = ()
    heard: list[str] = field(default_factory=list)

    def listen(self, page: Page) -> None:
        page.on("pageerror", lambda error: self._hear(f"uncaught: {error}"))
        page.on("console", self._on_console)
        page.on("crash", lambda _: self._hear("the page crashed"))

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._hear(f"{message.text} ({message.location.get('url', '')})")

    def _hear(self, text: str) -> None:
        if not any(re.search(pattern, text) for pattern in self.allowed):
            self.heard.append(text)


@contextmanager
def new_page(
    browser: Browser, *, size: tuple[int, int] = SMALL, allowed: tuple[str, ...] = (), **context: Any
) -> Iterator[Page]:
    """Give a page of a person who was never here before; whatever the browser complains of fails the test.

    Parameters
    ----------
    browser : Browser
    size : tuple of int
        Width and height of the window.
    allowed : tuple of str
        See `Complaints`.
    **context
        Of `Browser.new_context`, such as ``color_scheme="dark"`` or ``locale="zh-CN"``.
    """
    options = {"locale": "en-US", "color_scheme": "light", "reduced_motion": "reduce", **context}
    opened = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
    opened.set_default_timeout(WITHIN_S * 1000)
    complaints = Complaints(allowed)
    page = opened.new_page()
    complaints.listen(page)
    try:
        yield page
        assert complaints.heard == [], "\n".join(complaints.heard)
    finally:
        opened.close()


def visit(page: Page, server: RunningServer | str, **address: Any) -> Page:
    """Open the page of a server, and wait until it is there.

    Parameters
    ----------
    page : Page
    server : RunningServer or str
        Or the address that it printed.
    **address
        What the address bar says of the view: ``run``, ``rank``, ``graph``, ``node``, ``tensor``, ``tab``; a sequence
        for one that is there several times.
    """
    url = server if isinstance(server, str) else server.url
    query = urlencode(address, doseq=True)
    page.goto(f"{url}/?{query}" if query else f"{url}/")
    expect(page.get_by_test_id("app")).to_be_visible()
    return page


@contextmanager
def training(server: RunningServer, scenario: str | Path, folder: Path, *options: str) -> Iterator[str]:
    """Give the id of the session of a real PyTorch training, which stands before its first step.

    Parameters
    ----------
    server : RunningServer
    scenario : str or Path
        Name of a script in `tensight/scenarios`, without ``.py``; or a script, such as `TRANSFORMER`.
    folder : Path
        Of its own: for what it prints, and for its last steps.
    *options : str
        More options of `tensight run`.
    """
    assert server.debugger is not None
    host, _, port = server.debugger.rpartition(":")
    script = SCENARIOS / f"{scenario}.py" if isinstance(scenario, str) else scenario
    job = f"{script.stem}-{folder.name}"
    where = ["--host", host, "--port", port, "--job", job, "--break-at-start"]
    seen = ["--capture", "ops", "--record", "ring:5", "--record-folder", str(folder / "steps")]
    printed = folder / "training.txt"
    with printed.open("w") as output:
        process = popen(
            [sys.executable, "-m", "tensight", "run", *where, *seen, *options, str(script)],
            PYTORCH,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    try:
        with tensight.connect(server.url) as connected:
            yield _attached(connected, process, job, printed)
    finally:
        _end(process)


def _attached(server: tensight.client.Server, process: subprocess.Popen[bytes], job: str, printed: Path) -> str:
    for _ in range(int(ATTACH_WITHIN_S / LOOK_EVERY_S)):
        assert process.poll() is None, f"the training ended: {printed.read_text()}"
        try:
            session = server.wait_for_session(LOOK_EVERY_S, name=job)
        except WaitError:
            continue
        session.wait(ATTACH_WITHIN_S)
        return session.id
    raise AssertionError(f"the training did not attach within {ATTACH_WITHIN_S:.0f} s: {printed.read_text()}")


def _end(process: subprocess.Popen[bytes]) -> None:
    for send in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(send)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
            return
