"""The hyper-parameters and the folder of a trial, passed in an environment variable as the original does."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "MINDINSIGHT_HYPER_CONFIG"
LARGEST = 100_000
"""Maximum number of characters of the variable."""

PARAMS, SUMMARY_DIR, LINEAGE = "params", "summary_dir", "custom_lineage_data"


class Params(dict[str, Any]):
    """The hyper-parameters of a trial, by attribute and, as in the original, by key.

    A parameter with the name of a method of `dict`, such as ``values``, is available by key only.
    """

    def __getattr__(self, name: str) -> Any:
        """Return a parameter.

        Raises
        ------
        AttributeError
            The trial does not have it.
        """
        if name in self:
            return self[name]
        given = ", ".join(sorted(self)) or "none"
        raise AttributeError(f"this trial has no hyper-parameter {name!r}; it has: {given}")


class HyperConfig:
    """The hyper-parameters that a search has chosen for this process; a replacement for ``mindinsight.HyperConfig``.

    Outside a search there are none: every parameter raises `AttributeError`, and ``summary_dir`` is None.

    Attributes
    ----------
    params : Params
        The values by name: ``HyperConfig().params.learning_rate``, or ``HyperConfig().params["learning_rate"]``.
    summary_dir : str or None
        The folder of the trial.
    custom_lineage_data : dict or None
        What MindSpore's summary should record about the trial.

    Raises
    ------
    InputError
        ``MINDINSIGHT_HYPER_CONFIG`` was not written by a search.

    Examples
    --------
    >>> config = HyperConfig()  # doctest: +SKIP
    >>> config.params.learning_rate, config.summary_dir  # doctest: +SKIP
    (0.01, '/data/search/train_3f0c…')
    """

    def __init__(self) -> None:
        data = _read(os.environ.get(VARIABLE))
        self._params = Params(_mapping(data, PARAMS) or {})
        self._summary_dir = data.get(SUMMARY_DIR)
        self._lineage = _mapping(data, LINEAGE)
        if not isinstance(self._summary_dir, str | None):
            raise InputError(f"{VARIABLE}: {SUMMARY_DIR} is not a string; start the trial with `tensight search`")

    @property
    def params(self) -> Params:
        """The values by name."""
        return self._params

    @property
    def summary_dir(self) -> str | None:
        """The folder of the trial; None outside a search."""
        return self._summary_dir

    @property
    def custom_lineage_data(self) -> dict[str, Any] | None:
        """What MindSpore's summary should record about the trial; None outside a search."""
        return self._lineage


def hyper_config_text(params: Mapping[str, Any], summary_dir: str, lineage: Mapping[str, Any]) -> str:
    """Return the value of the environment variable.

    Raises
    ------
    InputError
        It is longer than a trial accepts.
    """
    text = json.dumps({PARAMS: dict(params), SUMMARY_DIR: summary_dir, LINEAGE: dict(lineage)})
    if len(text) > LARGEST:
        raise InputError(
            f"{VARIABLE} would have {len(text):,} characters, and {LARGEST:,} is the most; shorten choices"
        )
    return text


def _read(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    if len(text) > LARGEST:
        raise InputError(f"{VARIABLE} has {len(text):,} characters; a search writes at most {LARGEST:,}")
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InputError(f"{VARIABLE} is not JSON: {error}; start the trial with `tensight search`") from None
    if not isinstance(data, dict):
        raise InputError(f"{VARIABLE} is not a JSON object; start the trial with `tensight search`")
    return data


def _mapping(data: dict[str, Any], key: str) -> dict[str, Any] | None:
    value = data.get(key)
    if not isinstance(value, dict | None):
        raise InputError(f"{VARIABLE}: {key} is not a JSON object; start the trial with `tensight search`")
    return value
