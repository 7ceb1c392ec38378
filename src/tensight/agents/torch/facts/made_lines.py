"""Notes where a script makes what it trains with, sets modes, and loads files and weights.

The methods are replaced before scripts call them.
"""

from __future__ import annotations

import functools
import sys
import weakref
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from tensight.agents.core.call_stack import is_user_code, line_of_user, user_stack
from tensight.agents.core.process.termination import is_of_handler
from tensight.agents.core.replacing import Replacements
from tensight.agents.facts.samples import fingerprint
from tensight.agents.launch import when_imported
from tensight.agents.torch.facts.files import note_file, note_load, renamed_keys
from tensight.agents.torch.facts.reading import is_readable, sample
from tensight.agents.torch.inner_modules import held_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch.utils.hooks import RemovableHandle

_made: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_modes: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
_replaced = Replacements()
_MOST_LOADS = 64
_TRANSFORMERS = "transformers.modeling_utils"
_pretrained: list[tuple[Any, Any]] = []
_registering: list[RemovableHandle] = []
_loads: list[dict[str, Any]] = []
_mode_lines: list[str] = []
"""Of the calls that set modes and run now."""


def replace() -> None:
    """Replace the constructors of optimizers, schedulers and loaders, and `Module.train`, by those that note lines.

    Where modules become parts of others is noted by a hook.
    """
    for kind in (torch.optim.Optimizer, LRScheduler, DataLoader):
        _replaced.put(kind, "__init__", _making)
    if not _registering:
        _registering.append(module_hooks.register_module_module_registration_hook(_registered))
    _replaced.put(nn.Module, "train", _setting_mode)
    _replaced.put(nn.Module, "load_state_dict", _loading)
    _replaced.put(torch, "load", _reading)
    when_imported(_TRANSFORMERS, _replace_from_pretrained)


def put_back() -> None:
    """Put PyTorch's methods back."""
    _replaced.take_back()
    while _registering:
        _registering.pop().remove()
    while _pretrained:
        owner, method = _pretrained.pop()
        owner.from_pretrained = method


def take_loads() -> list[dict[str, Any]]:
    """Return the rows of ``loads`` since the last call."""
    rows = list(_loads)
    _loads.clear()
    return rows


def made_line(made: Any) -> str:
    """Return where an optimizer, a scheduler, a loader or a part of a model was made; empty if that is unknown.

    Parameters
    ----------
    made : object

    Returns
    -------
    str
        As train.py:31.
    """
    return _line(_made, made)


def mode_line(module: nn.Module) -> str:
    """Return where the mode of a module was set last; empty if that is unknown."""
    return _line(_modes, module)


def _line(lines: weakref.WeakKeyDictionary[Any, str], of: Any) -> str:
    # A class of the script's own may not be hashable.
    with suppress(TypeError):
        return lines.get(of, "")
    return ""


@contextmanager
def _harmless() -> Iterator[None]:
    """Let the training go on if something cannot be noted, as of classes that are not hashable."""
    try:
        yield
    except Exception as error:
        if is_of_handler(error):
            raise


def _making(original: Callable[..., None], made: Any, *arguments: Any, **named: Any) -> None:
    if not torch.compiler.is_compiling():
        with _harmless():
            _made[made] = _line_that_makes(type(made))
    original(made, *arguments, **named)


def _registered(_: nn.Module, _name: str, module: nn.Module | None) -> None:
    """Note where a module becomes part of another one first, which mostly is where it is made."""
    if isinstance(module, nn.Module) and not torch.compiler.is_compiling():
        with _harmless():
            if module not in _made:
                _made[module] = line_of_user()


def _line_that_makes(kind: type) -> str:
    constructors = [vars(each).get("__init__") for each in kind.__mro__]
    # Those of the script's own classes are not where it makes anything.
    skipped = sum(isinstance(each, FunctionType) and is_user_code(each.__code__) for each in constructors)
    frames = list(user_stack())
    while skipped and frames and frames[0].function == "__init__":
        del frames[0]
        skipped -= 1
    return frames[0].file_line if frames else ""


def _setting_mode(original: Callable[..., Any], module: nn.Module, *arguments: Any, **named: Any) -> Any:
    if torch.compiler.is_compiling():
        return original(module, *arguments, **named)
    # A module sets the modes of those within it.
    line = _mode_lines[-1] if _mode_lines else line_of_user()
    with _harmless():
        _modes[module] = line
    _mode_lines.append(line)
    try:
        return original(module, *arguments, **named)
    finally:
        _mode_lines.pop()


def _loading(original: Callable[..., Any], module: nn.Module, *arguments: Any, **named: Any) -> Any:
    result = original(module, *arguments, **named)
    if not torch.compiler.is_compiling():
        with _harmless():
            _note_load(module, arguments[0] if arguments else named["state_dict"], result)
    return result


def _reading(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    content = original(*arguments, **named)
    if not torch.compiler.is_compiling():
        with _harmless():
            note_file(arguments[0] if arguments else named.get("f"), content)
    return content


def _replace_from_pretrained() -> None:
    """Note what models of transformers initialize anew; a class method has to be replaced as one."""
    owner: Any = sys.modules[_TRANSFORMERS].PreTrainedModel
    method = vars(owner)["from_pretrained"]

    @functools.wraps(method.__func__)
    def from_pretrained(kind: type, *arguments: Any, output_loading_info: bool = False, **named: Any) -> Any:
        result = method.__func__(kind, *arguments, output_loading_info=True, **named)
        if not isinstance(result, tuple) or len(result) != 2:
            return result
        model, info = result
        with _harmless():
            missing = [*info["missing_keys"], *(key for key, *_ in info.get("mismatched_keys", ()))]
            unexpected = list(info["unexpected_keys"])
            count = len(set(model.state_dict()) - set(missing)) + len(unexpected)
            _note_keys(model, count, missing, unexpected, is_pretrained=True)
        return result if output_loading_info else model

    owner.from_pretrained = classmethod(from_pretrained)  # type: ignore[arg-type]
    _pretrained.append((owner, method))


def _note_load(module: nn.Module, state: Any, result: Any) -> None:
    missing, unexpected = getattr(result, "missing_keys", None), getattr(result, "unexpected_keys", None)
    if not isinstance(missing, list) or not isinstance(unexpected, list):
        return
    note_load(module, state, unexpected)
    values = [sample(value) for value in state.values() if _is_readable(value)]
    _note_keys(module, len(state), missing, unexpected, fingerprint=fingerprint(values))


def _note_keys(module: nn.Module, count: int, missing: list[str], unexpected: list[str], **more: Any) -> None:
    if len(_loads) >= _MOST_LOADS:
        return
    renamed = renamed_keys(missing, unexpected)
    _loads.append(
        {
            "name": f"{type(module).__name__} {len(_loads) + 1}",
            "module": type(module).__name__,
            "line": line_of_user(),
            "keys": count,
            "unexpected": len(unexpected),
            "missing": len(missing),
            "missing_share": _share(module, missing),
            "renamed": len(renamed),
            "renamed_share": _share(module, renamed.values()),
            "example": next((f"{given} for {expected}" for given, expected in renamed.items()), ""),
            **more,
        }
    )


def _share(module: nn.Module, names: Iterable[str]) -> float:
    """Return which share of a module some parameters are: of its elements or of its layers, whichever is less."""
    sizes = {name: weight.numel() for name, weight in held_tensors(module, "_parameters")}
    some = [name for name in names if name in sizes]
    layers, of_some = ({name.rpartition(".")[0] for name in each} for each in (sizes, some))
    if len(of_some) < 2:
        return 0.0
    share: float = sum(sizes[name] for name in some) / sum(sizes.values())
    return min(share, len(of_some) / len(layers))


def _is_readable(value: object) -> bool:
    return isinstance(value, torch.Tensor) and is_readable(value)
