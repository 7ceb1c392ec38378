"""Write down of which commit a package is built: ``src/tensight/COMMIT``, which `tensight --version` reads.

Done before a wheel or the sources of a release are packed. The file is never committed: in a checkout, `tensight
--version` asks git.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Of all of Tensight only what needs nothing else.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from tensight.installations import COMMIT_FILE, commit_of

COMMIT = Path("src/tensight") / COMMIT_FILE


def write(root: Path) -> list[Path]:
    """Write the file, and return it in a list; an empty one where git does not know.

    Parameters
    ----------
    root : Path
        Of the repository, or of the unpacked sources of a release, which have the file.
    """
    file = root / COMMIT
    if (root / ".git").exists():
        # Git is asked only where there is no such file.
        file.unlink(missing_ok=True)
        commit = commit_of(str(file.parent))
        if commit:
            file.write_text(f"{commit}\n")
    return [file] if file.exists() else []
