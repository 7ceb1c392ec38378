"""A diagnosis as JUnit's XML, which CI systems show as tests: a rule is one, and a finding is its failure."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from tensight.cli.diagnosis.plain_text import lines, one_line
from tensight.cli.diagnosis.words import text

if TYPE_CHECKING:
    from tensight.cli.diagnosis.report import Report
    from tensight.sessions.records import FindingRecord

_SUITE = "tensight diagnose"


def as_junit(report: Report) -> str:
    """Return a suite: findings are failures, rules that could not judge are skipped, those that found nothing pass.

    Rules whose findings follow from another one are left out: they are in the text of that one.
    """
    diagnosis = report.diagnosis
    cases = [_of_finding(report, finding, number) for finding, number in _numbered(diagnosis.findings)]
    skipped = [_case(each.rule, f"<skipped message={_attribute(each.why)}/>") for each in diagnosis.undecided]
    passed = [_case(rule, "") for rule in diagnosis.passed]
    errors = []
    if not diagnosis.steps:
        errors.append(_case("steps", f"<error message={_attribute(text('none', report.language))}/>"))
    if report.ending.failure:
        message = _attribute(text("failed", report.language))
        errors.append(_case("training", f"<error message={message}>{escape(lines(report.ending.failure))}</error>"))
    counts = {
        "tests": len(cases) + len(skipped) + len(passed) + len(errors),
        "failures": len(cases),
        "errors": len(errors),
        "skipped": len(skipped),
    }
    numbers = " ".join(f'{name}="{count}"' for name, count in counts.items())
    content = "\n".join((*errors, *cases, *skipped, *passed))
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="{_SUITE}" {numbers}>\n'
        f'<testsuite name="{_SUITE}" {numbers}>\n{content}\n</testsuite>\n</testsuites>\n'
    )


def _numbered(findings: tuple[FindingRecord, ...]) -> list[tuple[FindingRecord, int]]:
    """Return the findings, each with its number among those of the same rule, from 1."""
    counts: dict[str, int] = {}
    numbered = []
    for finding in findings:
        counts[finding.rule] = counts.get(finding.rule, 0) + 1
        numbered.append((finding, counts[finding.rule]))
    return numbered


def _of_finding(report: Report, finding: FindingRecord, number: int) -> str:
    words = finding.chinese if report.language else finding
    position = report.position(finding)
    sentences = [f"{position.file}:{position.line}"] if position is not None else []
    sentences += [words.title, *words.evidence, *([f"→ {words.advice}"] if words.advice else [])]
    sentences += [f"{text('explains', report.language)}: {other}" for other in words.explains]
    content = escape("\n".join(map(one_line, sentences)))
    message = _attribute(words.title)
    name = finding.rule if number == 1 else f"{finding.rule} {number}"
    return _case(name, f'<failure message={message} type="{finding.certainty}">{content}</failure>')


def _case(name: str, content: str) -> str:
    return f'<testcase classname="tensight.diagnose" name={_attribute(name)}>{content}</testcase>'


def _attribute(words: str) -> str:
    return quoteattr(one_line(words))
