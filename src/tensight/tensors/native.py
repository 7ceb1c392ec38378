"""The kernels as object code: what the compiler leaves behind, and how a process takes it in and calls it.

numba is needed to compile (`kernels`), but not to run: importing it takes longer than scanning a gigabyte. So the
machine code it makes is emitted as an object file of its own, which LLVM's linker (`llvmlite.binding`) places in the
memory of a process in a millisecond or two, and which ctypes calls. ctypes lets go of the interpreter lock.

The entry of a kernel is the function that numba calls a kernel's native one. Besides the arguments of the kernel it
takes two addresses, where to write a result and an exception; kernels have neither.
"""

from __future__ import annotations

import ctypes
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

INFINITY_32 = np.int32(0x7F800000)
INFINITY_64 = np.int64(0x7FF0000000000000)
"""Order keys of +infinity. Their type tells the kernels the width of the values; ``~key`` is the key of -infinity."""

_ENTRY = "tensight_kernel"
_INTEGER = ctypes.c_int64  # also for addresses: it takes any integer, and quickly
_SCAN = [_INTEGER] * 11
_CHANGE = [*[_INTEGER] * 4, ctypes.c_double, *[_INTEGER] * 2]
_UNUSED = (ctypes.c_int64 * 2)()
"""Where kernels "write" their result and exception: zeros, if anything, by any thread."""


class Kernel(Enum):
    """A compiled version of a kernel, by the width of the values it reads."""

    SCAN_SINGLE = "scan-single"
    SCAN_DOUBLE = "scan-double"
    CHANGE_SINGLE = "change-single"
    CHANGE_DOUBLE = "change-double"

    @property
    def is_scan(self) -> bool:
        """Whether this is a version of `kernels.scan`, else of `kernels.compare`."""
        return self in (Kernel.SCAN_SINGLE, Kernel.SCAN_DOUBLE)

    @property
    def is_double(self) -> bool:
        """Whether the values are float64, else float32."""
        return self in (Kernel.SCAN_DOUBLE, Kernel.CHANGE_DOUBLE)


def object_code(assembly: str, entry: str) -> bytes:
    """Return LLVM code as an object file for this processor.

    Parameters
    ----------
    assembly : str
        The optimised code of one kernel with all its parts.
    entry : str
        Name of the function to be called.

    Raises
    ------
    RuntimeError
        The code calls a function that is not part of it.
    """
    llvm = _llvm()
    module = llvm.parse_assembly(assembly)
    missing = [found.name for found in module.functions if found.is_declaration and not found.name.startswith("llvm.")]
    if missing:
        raise RuntimeError(f"a compiled kernel needs {', '.join(missing)} from outside")
    module.get_function(entry).name = _ENTRY
    processor = {"cpu": llvm.get_host_cpu_name(), "features": llvm.get_host_cpu_features().flatten()}
    return bytes(_target_machine(opt=3, **processor).emit_object(module))


def load(kernel: Kernel, code: bytes) -> Callable[..., Any]:
    """Place object code in the memory of this process, for as long as that lives, and return the kernel.

    Parameters
    ----------
    kernel : Kernel
        Which one it is.
    code : bytes
        What `object_code` returned for it; anything else may well end the process.

    Returns
    -------
    callable
        Takes the arguments of `kernels.scan` or `kernels.compare` without `infinity`, as integers and floats. What its
        addresses belong to must stay alive meanwhile.

    Raises
    ------
    OSError
        The system allows no new executable memory.
    RuntimeError
        The code is no object file.
    """
    llvm = _llvm()
    llvm.check_jit_execution()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(_ENTRY)
    engine.detach()  # or the code would vanish with `engine`, at the latest when Python ends and a thread still runs it
    infinity = ctypes.c_int64 if kernel.is_double else ctypes.c_int32
    arguments = _SCAN if kernel.is_scan else _CHANGE
    function = ctypes.CFUNCTYPE(ctypes.c_int32, _INTEGER, _INTEGER, infinity, *arguments)(address)
    unused = ctypes.addressof(_UNUSED)
    return partial(function, unused, unused + 8, int(INFINITY_64 if kernel.is_double else INFINITY_32))


def _llvm() -> Any:
    """Return LLVM, ready for this kind of processor."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


def _target_machine(**options: Any) -> Any:
    """Return LLVM's generator of code for this system, with the options that numba uses for code in memory."""
    llvm = _llvm()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(reloc="default", codemodel="jitdefault", jit=True, **options)
