"""A diagnosis as workflow commands of GitHub Actions, which become annotations of lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.cli.diagnosis.plain_text import lines, one_line
from tensight.cli.diagnosis.words import text

if TYPE_CHECKING:
    from tensight.cli.diagnosis.report import Report
    from tensight.sessions.records import FindingRecord

_LEVELS = {"certain": "error", "likely": "warning", "possible": "notice"}


def as_github(report: Report) -> str:
    """Return a command for each finding, for a failure and for each remark.

    Nothing of a training is printed outside of a command, as a line of its own could be one.
    """
    diagnosis, language = report.diagnosis, report.language
    commands = []
    if report.ending.failure:
        commands.append(_command("error", {"title": text("failed", language)}, lines(report.ending.failure)))
    if not diagnosis.steps:
        commands.append(_command("error", {}, text("none", language)))
    commands += [_command("warning", {}, one_line(remark)) for remark in report.remarks]
    commands += [_of_finding(report, finding) for finding in diagnosis.findings]
    if diagnosis.steps:
        commands.append(report.summary)
    return "\n".join(commands) + "\n"


def _of_finding(report: Report, finding: FindingRecord) -> str:
    words = finding.chinese if report.language else finding
    properties = {}
    position = report.position(finding)
    if position is not None:
        properties = {"file": one_line(position.file), "line": str(position.line)}
    properties["title"] = f"{finding.rule} ({text(finding.certainty, report.language)})"
    sentences = [words.title, *words.evidence, *([f"→ {words.advice}"] if words.advice else [])]
    sentences += [f"{text('explains', report.language)}: {other}" for other in words.explains]
    return _command(_LEVELS[finding.certainty], properties, "\n".join(map(one_line, sentences)))


def _command(level: str, properties: dict[str, str], message: str) -> str:
    settings = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{level}{' ' if settings else ''}{settings}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
