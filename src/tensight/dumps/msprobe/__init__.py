"""Dumps of msprobe (MindStudio Probe, ``mindstudio-probe`` on PyPI), read as runs.

msprobe writes a folder for each step and rank: ``dump.json`` lists the calls of modules and functions in the order in
which they ended, with statistics of their inputs and outputs, ``stack.json`` the lines of code that made them, and
``construct.json`` the module that each of them belongs to. With task "tensor" the values are in one file per tensor.
The facts are those of msprobe 26.2 on PyTorch, measured on the dumps in ``tests/fixtures``.
"""
