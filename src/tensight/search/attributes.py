"""Names of the attributes of trials and studies in the storage."""

from __future__ import annotations

WORKER = "worker"
REASON = "reason"
ILLNESS = "illness"
WARNINGS = "warnings"
FOLDER = "summary_dir"
COMMAND = "command"
EXIT_CODE = "exit_code"
SESSION = "session"
STEPS = "steps"
LOSSES = "losses"
HALF_LOSS = "half_loss"
NOWHERE = "nowhere"
SET_ASIDE = "set_aside"
ATTEMPT = "attempt"
COMBINATION = "combination"

# Of a study:
CONFIGURATION = "configuration"
ASKING = "asking"
