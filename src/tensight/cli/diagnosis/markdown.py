"""A diagnosis as Markdown, for an issue, a pull request or the summary of a job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tensight.cli.diagnosis.plain_text import lines, one_line
from tensight.cli.diagnosis.probes import outcome_text, probe_sentences
from tensight.cli.diagnosis.words import text

if TYPE_CHECKING:
    from tensight.cli.diagnosis.report import Report
    from tensight.sessions.records import FindingRecord

_MARKS = {"certain": "❌", "likely": "⚠️", "possible": "❔"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$])")
_CODE = re.compile(r"`([^`]+)`")
_LINKED = re.compile(r"(?i)(https?|ftp|mailto|xmpp)(:)|(www)(\.)")


def as_markdown(report: Report) -> str:
    """Return the findings, the set-up and the rules that could not judge."""
    diagnosis, language = report.diagnosis, report.language
    key = "title" if diagnosis.findings else "title-none" if diagnosis.steps else "title-unjudged"
    parts = [f"# {text(key, language)}"]
    if report.ending.failure:
        parts.append(f"**{text('failed', language)}**\n\n{_block(report.ending.failure)}")
    if not diagnosis.steps:
        parts.append(text("none", language))
    parts += [f"> {_escaped(remark)}" for remark in report.remarks]
    parts += [_of_finding(report, finding) for finding in diagnosis.findings]
    if diagnosis.steps:
        parts.append(report.summary)
    if report.probes:
        lines_of = [
            f"- {outcome_text(outcome, language)}: {_escaped(words)}"
            for outcome, words in probe_sentences(report.probes, language)
        ]
        parts.append(f"**{text('probes', language)}**\n\n" + "\n".join(lines_of))
    if diagnosis.undecided:
        rows = [f"| {_escaped(why)} | {_escaped(', '.join(rules))} |" for why, rules in report.undecided.items()]
        head = f"| {text('why', language)} | {text('rules', language)} |\n|---|---|\n"
        parts.append(_folded(text("undecided-title", language), head + "\n".join(rows)))
    rows = [f"| {text(key, language)} | {_escaped('; '.join(texts))} |" for key, texts in report.setup.items()]
    parts.append(_folded(text("setup", language), "| | |\n|---|---|\n" + "\n".join(rows)))
    return "\n\n".join(parts) + "\n"


def _of_finding(report: Report, finding: FindingRecord) -> str:
    language = report.language
    words = finding.chinese if language else finding
    position = report.position(finding)
    where = [_code(f"{position.file}:{position.line}")] if position is not None else []
    since = [text("since", language, step=finding.step)] if finding.step > 1 else []
    facts = [text(finding.certainty, language), *since, *where, _code(finding.rule)]
    parts = [f"## {_MARKS[finding.certainty]} {_escaped(words.title)}", " · ".join(facts)]
    parts.append("\n".join(f"- {_escaped(sentence)}" for sentence in words.evidence))
    if words.advice:
        parts.append(f"**{text('advice', language)}:** {_escaped(words.advice)}")
    if words.explains:
        others = "\n".join(f"- {_escaped(other)}" for other in words.explains)
        parts.append(f"{text('explains-title', language)}:\n\n{others}")
    return "\n\n".join(part for part in parts if part)


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{content}\n\n</details>"


def _escaped(sentence: str) -> str:
    """Return a sentence that shows as it is: no formatting but code, no link, no mention of a person, no reference."""
    parts = _CODE.split(one_line(sentence))
    return "".join(_code(part) if at % 2 else _plain(part) for at, part in enumerate(parts))


def _plain(words: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", words.replace("&", "&amp;"))
    escaped = _LINKED.sub(lambda match: f"{match[1] or match[3]}\\{match[2] or match[4]}", escaped)
    # GitHub searches the text that is shown for names and numbers: an empty comment in between ends them.
    return escaped.replace("@", "@<!-- -->").replace("\\#", "\\#<!-- -->")


def _code(words: str) -> str:
    """Return a code span, whose fence is longer than any in the text."""
    line = one_line(words, 300).replace("|", "¦")
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    space = " " if "`" in line else ""
    return f"{fence}{space}{line}{space}{fence}"


def _block(output: str) -> str:
    shown = lines(output)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence}text\n{shown}\n{fence}"
