"""The kernels as object code: what the compiler leaves behind, and how a process takes it in and calls it.

numba is needed to compile (`kernels`), but not to run: importing it takes longer than scanning a gigabyte. So the
machine code it makes is emitted as an object file of its own, which LLVM's linker (`llvmlite.binding`) places in the
memory of a process in a millisecond or two, and which ctypes calls: with the address of a task, because a call takes
0.1 µs with one argument, and 1.2 µs with fourteen.
"""

from __future__ import annotations

import ctypes
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

INFINITY_32 = np.int32(0x7F800000)
INFINITY_64 = np.int64(0x7FF0000000000000)
"""Order keys of +infinity. Their type tells the kernels the width of the values; ``~key`` is the key of -infinity."""

INFINITY_HALF = np.int16(0x7C00)
INFINITY_BRAIN = np.int16(0x7F80)
"""Bits of +infinity."""

_ENTRY = "tensight_kernel"
_WRAPPER = """
define i64 @{entry}(i64 %task) {{
  %result = alloca {result_to}
  %error = alloca {error_to}
  %status = call i32 @"{function}"({result} %result, {error} %error, i64 %task)
  %number = load i64, {result} %result
  ret i64 %number
}}
"""
"""Hides what numba's functions take beside their arguments: where to write a result and an exception."""


class NativeKernel(NamedTuple):
    """A kernel in the memory of this process.

    Attributes
    ----------
    call : callable (address of a task) -> int
        Runs it without the interpreter lock.
    call_holding : callable (address of a task) -> int
        Runs it with the interpreter lock held. It is quicker for small tensors, above all when another thread would
        take the lock: then it takes up to 5 ms to get it back.
    address : int
        Of the machine code, a C function of one 64-bit number.
    """

    call: Callable[[int], int]
    call_holding: Callable[[int], int]
    address: int


class Kernel(Enum):
    """A compiled version of a kernel, by the width of the values it reads."""

    SCAN_SINGLE = "scan-single"
    SCAN_DOUBLE = "scan-double"
    CHANGE_SINGLE = "change-single"
    CHANGE_DOUBLE = "change-double"
    NON_FINITE = "non-finite"
    SCAN_SHARED = "scan-shared"

    @property
    def is_scan(self) -> bool:
        """Whether this is a version of `kernels.scan`."""
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
    result, error, _ = (str(argument.type) for argument in module.get_function(entry).arguments)
    module = llvm.parse_assembly(assembly + _wrapper(entry, result, error))
    processor = {"cpu": llvm.get_host_cpu_name(), "features": llvm.get_host_cpu_features().flatten()}
    return bytes(_target_machine(opt=3, **processor).emit_object(module))


def _wrapper(function: str, result: str, error: str) -> str:
    """Return a function that takes nothing but the address of a task; LLVM's types of the other two are given."""
    # since version 15 pointers have one type, before they told what they point at
    pointees = ("i64", "ptr") if result == "ptr" else (result[:-1], error[:-1])
    names = dict(zip(("result_to", "error_to"), pointees, strict=True))
    return _WRAPPER.format(entry=_ENTRY, function=function, result=result, error=error, **names)


def load(code: bytes) -> NativeKernel:
    """Place object code in the memory of this process, for as long as that lives, and return the kernel.

    Parameters
    ----------
    code : bytes
        What `object_code` returned; anything else may well end the process. What a task's addresses belong to must
        stay alive while the kernel runs.

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
    signature = ctypes.c_int64, ctypes.c_int64
    return NativeKernel(ctypes.CFUNCTYPE(*signature)(address), ctypes.PYFUNCTYPE(*signature)(address), address)


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
