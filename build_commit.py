"""Write down of which commit a package is built: ``src/tensight/COMMIT``, which `tensight --version` reads.

Done before a wheel or the sources of a release are packed. The file is never committed: in a checkout, `tensight
--version` asks git.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

COMMIT = Path("src/tensight/COMMIT")


def write(root: Path) -> list[Path]:
    """Write the file, and return it in a list; an empty one where git does not know.

    Parameters
    ----------
    root : Path
        Of the repository, or of the unpacked sources of a release, which have the file.
    """
    file = root / COMMIT
    if (root / ".git").exists():
        file.unlink(missing_ok=True)
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=7"]
        try:
            found = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        except (OSError, subprocess.SubprocessError):
            return []
        file.write_text(found.stdout)
    return [file] if file.exists() else []
