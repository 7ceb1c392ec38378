"""A diagnosis as SARIF 2.1.0, the format of code scanners (OASIS, errata 01)."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tensight.cli.diagnosis.plain_text import lines, one_line
from tensight.cli.diagnosis.report import names_in
from tensight.cli.diagnosis.words import text

if TYPE_CHECKING:
    from tensight.cli.diagnosis.report import Report
    from tensight.sessions.records import FindingRecord

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"certain": "error", "likely": "warning", "possible": "note"}
_LOGICAL_KINDS = {"parameter": "variable", "module": "object", "optimizer": "object", "operator": "function"}
_MOST_LOGICAL = 20


def as_sarif(report: Report) -> str:
    """Return a log with one run: its rules, a result for each finding, and rules that could not judge as notes."""
    from tensight.version import __version__

    diagnosis = report.diagnosis
    named = dict.fromkeys(finding.rule for finding in diagnosis.findings)
    named |= dict.fromkeys(undecided.rule for undecided in diagnosis.undecided)
    indices = {rule: index for index, rule in enumerate(named)}
    notes = [
        {
            "level": "note",
            "message": {"text": one_line(undecided.why)},
            "associatedRule": {"id": undecided.rule, "index": indices[undecided.rule]},
        }
        for undecided in diagnosis.undecided
    ]
    notes += [{"level": "warning", "message": {"text": one_line(remark)}} for remark in report.remarks]
    if not diagnosis.steps:
        notes.append({"level": "error", "message": {"text": text("none", report.language)}})
    if report.ending.failure:
        notes.append({"level": "error", "message": {"text": lines(report.ending.failure)}})
    run = {
        "tool": {
            "driver": {
                "name": "Tensight",
                "semanticVersion": __version__,
                "rules": [_rule(report, rule) for rule in named],
            }
        },
        "invocations": [
            {
                "executionSuccessful": bool(diagnosis.steps) and not report.ending.failure,
                "toolExecutionNotifications": notes,
            }
        ],
        "results": [_result(report, finding, indices[finding.rule]) for finding in diagnosis.findings],
        "columnKind": "utf16CodeUnits",
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(report: Report, rule_id: str) -> dict[str, Any]:
    from tensight.diagnosis.findings import CATEGORIES

    rule, language = report.rules[rule_id], report.language
    silent = f"\n\n{text('silent', language, what=rule.silent[language])}" if rule.silent[language] else ""
    return {
        "id": rule.id,
        "shortDescription": {"text": one_line(rule.summary)},
        "fullDescription": {"text": one_line(rule.summary)},
        "help": {"text": lines(f"{rule.advice[language]}{silent}".strip() or rule.summary)},
        "properties": {"tags": [CATEGORIES[rule.category][language]]},
    }


def _result(report: Report, finding: FindingRecord, index: int) -> dict[str, Any]:
    words = finding.chinese if report.language else finding
    sentences = [words.title, *words.evidence, *([f"→ {words.advice}"] if words.advice else [])]
    sentences += [f"{text('explains', report.language)}: {other}" for other in words.explains]
    identity = json.dumps([finding.rule, sorted(finding.where.items())])
    location = _location(report, finding)
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": _LEVELS[finding.certainty],
        "message": {"text": "\n".join(map(one_line, sentences))},
        "locations": [location] if location else [],
        "partialFingerprints": {"ruleAndWhere/v1": hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()},
        "properties": {"certainty": finding.certainty, "step": finding.step, "category": finding.category},
    }


def _location(report: Report, finding: FindingRecord) -> dict[str, Any]:
    location: dict[str, Any] = {}
    position = report.position(finding)
    if position is not None:
        location["physicalLocation"] = {
            "artifactLocation": _artifact(position.file, is_here=position.is_here),
            "region": {"startLine": max(position.line, 1)},
        }
    elif report.script_here:
        # A scanner shows no result without a file.
        location["physicalLocation"] = {"artifactLocation": _artifact(report.script_here, is_here=True)}
    logical = [
        {"name": one_line(name, 300), "kind": kind}
        for key, kind in _LOGICAL_KINDS.items()
        for name in names_in(finding.where.get(key, ""))[:_MOST_LOGICAL]
    ]
    return {**location, "logicalLocations": logical} if logical else location


def _artifact(file: str, *, is_here: bool) -> dict[str, str]:
    uri = quote(one_line(file, 1000).encode("utf-8", "replace"))
    return {"uri": uri, "uriBaseId": "%SRCROOT%"} if is_here else {"uri": uri}
