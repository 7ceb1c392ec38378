"""What was done to pictures before the first layer: how their pixels were scaled, and whether their axes were mixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

_NORMALISATIONS: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CLIP": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "CIFAR-10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "CIFAR-10 (0.247)": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "CIFAR-100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "MNIST": ((0.1307,), (0.3081,)),
    "FashionMNIST": ((0.2860,), (0.3530,)),
    "0.5 / 0.5": ((0.5,), (0.5,)),
}
"""Means and standard deviations with which pixels in [0, 1] are normalised, for each channel."""

_LEVELS = 255
"""The greatest pixel of 8 bits."""

_OF_LEVEL, _OF_RANGE = 0.02, 2e-4
"""How far a pixel may be from a level, in levels, and the darkest and the brightest one from black and white."""

_LEAST_LEVELS, _COMPARED = 16, 4096
"""Number of levels of a channel from which on they are none by chance, and of pixels of a channel that are compared."""

_LEAST_SIDE, _LEAST_FEATURES = 12, 64
_PICTURES, _ELEMENTS = 4, 1 << 17
"""Number of pictures that are read in another order, at least, and of their elements if they are small."""

_SMOOTHER, _OF_DEVIATION = 0.7, 1.2
"""How much less neighbours differ in the right order than in this one, and than the pixels deviate (of noise: 2.3)."""


def picture_facts(values: NDArray[Any]) -> dict[str, Any]:
    """Return what was done to the pictures that the first layer is given; nothing if they are none.

    Parameters
    ----------
    values : ndarray, shape (samples, channels, rows, columns) or (samples, features)
    """
    samples = len(values)
    facts: dict[str, Any] = {}
    if not samples or values.dtype.kind != "f" or not np.isfinite(values).all():
        return facts
    if values.ndim == 4 and values.shape[1] in (1, 3) and min(values.shape[2:]) >= 4:
        facts["pixels"] = _scaled(values.reshape(samples, values.shape[1], -1))
        if values.shape[1] == 3 and min(values.shape[2:]) >= _LEAST_SIDE:
            count = max(_ELEMENTS * samples // values.size, _PICTURES)
            facts["mixed"] = _share_mixed(values[:count].astype(np.float32))
    elif values.ndim == 2 and values.shape[1] >= _LEAST_FEATURES:
        channels = (1, 3) if values.shape[1] % 3 == 0 else (1,)
        scaled = (_scaled(values.reshape(samples, count, -1)) for count in channels)
        facts["pixels"] = next(filter(None, scaled), "")
    return facts


def _scaled(values: NDArray[Any]) -> str:
    """Return how pixels were scaled, if they were normalised or divided twice, or not divided; else an empty text.

    Parameters
    ----------
    values : ndarray, shape (samples, channels, pixels)
    """
    channels = values.shape[1]
    by_channel = values.swapaxes(0, 1).reshape(channels, -1)
    darkest, brightest = by_channel.min(1).astype(np.float64), by_channel.max(1).astype(np.float64)
    compared = by_channel[:, :: by_channel.shape[1] // _COMPARED | 1].astype(np.float64)
    for name, black, white in _scales(channels):
        width = white - black
        if (darkest < black - _OF_RANGE * width).any() or (brightest > white + _OF_RANGE * width).any():
            continue
        at_black, at_white = darkest - black <= _OF_RANGE * width, white - brightest <= _OF_RANGE * width
        # Round ends, as -3 and 1, may be those of anything.
        is_round = bool((black % 1 == 0).all())
        if (at_black.all() and at_white.all() and not is_round) or _are_levels(compared, black, width):
            return name
    return ""


def _are_levels(pixels: NDArray[Any], black: NDArray[Any], width: NDArray[Any]) -> bool:
    """Whether all pixels are levels of 8 bits between black and white, and many levels occur."""
    levels = (pixels - black[:, None]) * (_LEVELS / width[:, None])
    whole = np.round(levels)
    if (np.abs(levels - whole) > _OF_LEVEL).any():
        return False
    return all(np.count_nonzero(np.bincount(row)) >= _LEAST_LEVELS for row in whole.clip(0).astype(np.int64))


def _scales(channels: int) -> Iterator[tuple[str, NDArray[Any], NDArray[Any]]]:
    """Yield the wrong ways to scale pixels, each with what becomes of black and white in each channel."""
    by_name = {
        name: (np.resize(mean, channels), np.resize(deviation, channels))
        for name, (mean, deviation) in _NORMALISATIONS.items()
        if len(mean) in (1, channels)
    }
    yield "divided twice", np.zeros(channels), np.full(channels, 1 / _LEVELS)
    for name, (mean, deviation) in by_name.items():
        yield f"not divided, {name}", -mean / deviation, (_LEVELS - mean) / deviation
        yield f"divided twice, {name}", -mean / deviation, (1 / _LEVELS - mean) / deviation
        for other, (again, over) in by_name.items():
            yield f"{name}, {other}", (-mean / deviation - again) / over, ((1 - mean) / deviation - again) / over


def _share_mixed(pictures: NDArray[Any]) -> float:
    """Return the share of the pictures that are smooth only if their elements are read as rows, columns, channels.

    Parameters
    ----------
    pictures : ndarray, shape (samples, 3, rows, columns)
    """
    samples, channels, rows, columns = pictures.shape
    restored = pictures.reshape(samples, rows, columns, channels)
    across, down = _steps(pictures, 3), _steps(pictures, 2)
    steps = _steps(restored, 2) + _steps(restored, 1)
    is_smoother = (steps < _SMOOTHER * (across + down)) & (_steps(pictures, 3, apart=channels) < across)
    # Of stripes that are three pixels apart, nothing or noise is left.
    is_picture = steps < _OF_DEVIATION * restored.std((1, 2)).mean(1)
    return float((is_smoother & is_picture).mean())


def _steps(pictures: NDArray[Any], axis: int, apart: int = 1) -> NDArray[Any]:
    """Return by how much elements of each picture differ that are so far apart along an axis, as a mean."""
    elements = np.moveaxis(pictures, axis, 1)
    steps: NDArray[Any] = np.abs(elements[:, apart:] - elements[:, :-apart]).mean((1, 2, 3))
    return steps
