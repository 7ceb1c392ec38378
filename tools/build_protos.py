"""Build the protobuf modules: every .proto under src/ becomes a _pb2.py and a _pb2.pyi beside it.

A module holds the serialized descriptor of its file, of which `tensight.messages` makes the classes: so it works with
every protobuf from 4.25 on, whatever protoc was used. Done before a wheel is packed, and before an installation in
place; `python tools/build_protos.py` does it by hand (needs grpcio-tools). The built files are never edited or
committed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

MODULE = '''"""The messages of {proto}; built by build_protos.py."""

{imports}from tensight.messages import define_messages

PROTO = {proto!r}
define_messages({descriptor!r}, globals())
'''


def build(root: Path) -> list[Path]:
    """Run protoc over every .proto under `root`/src and return the files it wrote."""
    source = root / "src"
    built: list[Path] = []
    for proto in sorted(source.rglob("*.proto")):
        module, types = (proto.with_name(proto.stem + suffix) for suffix in ("_pb2.py", "_pb2.pyi"))
        module.write_text(_compile(proto, source))
        # protoc writes Mapping without its parameters, which strict mypy refuses.
        types.write_text(f'# mypy: disable-error-code="type-arg"\n{types.read_text()}')
        built += [module, types]
    return built


def _compile(proto: Path, source: Path) -> str:
    """Write the types of a .proto file beside it, and return its module."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "descriptor"
        outputs = [f"--descriptor_set_out={compiled}", f"--pyi_out={source}"]
        if protoc.main(["protoc", f"-I{source}", *outputs, str(proto)]) != 0:
            raise RuntimeError(f"protoc could not compile {proto}; its message is above")
        (file,) = FileDescriptorSet.FromString(compiled.read_bytes()).file
    imported = (name.removesuffix(".proto").replace("/", ".") for name in file.dependency)
    imports = "".join(f"import {name}_pb2\n" for name in imported)
    return MODULE.format(proto=file.name, imports=imports, descriptor=file.SerializeToString())


if __name__ == "__main__":
    for path in build(Path(__file__).resolve().parents[1]):
        sys.stdout.write(f"{path}\n")
