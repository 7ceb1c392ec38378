"""Build the protobuf modules: every .proto under src/ becomes a _pb2.py and a _pb2.pyi beside it.

Done before a wheel is packed, and before an installation in place; `python build_protos.py` does it by hand (needs
grpcio-tools of the version that pyproject.toml pins). The built files are never edited or committed.
"""

from __future__ import annotations

import sys
from pathlib import Path


def build(root: Path) -> list[Path]:
    """Run protoc over every .proto under `root`/src and return the files it wrote."""
    import grpc_tools
    from grpc_tools import protoc

    source = root / "src"
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    built: list[Path] = []
    for proto in sorted(source.rglob("*.proto")):
        # Paths relative to src/ make the built modules import each other as tensight.*, as installed.
        include, outputs = [f"-I{source}", f"-I{well_known}"], [f"--python_out={source}", f"--pyi_out={source}"]
        if protoc.main(["protoc", *include, *outputs, str(proto)]) != 0:
            raise RuntimeError(f"protoc could not compile {proto}; its message is above")
        module, types = (proto.with_name(proto.stem + suffix) for suffix in ("_pb2.py", "_pb2.pyi"))
        # protoc writes Mapping without its parameters, which strict mypy refuses.
        types.write_text(f'# mypy: disable-error-code="type-arg"\n{types.read_text()}')
        built += [module, types]
    return built


if __name__ == "__main__":
    for path in build(Path(__file__).resolve().parent):
        sys.stdout.write(f"{path}\n")
