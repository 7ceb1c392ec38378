"""Why a training does not learn: facts of its steps, rules over them, and findings."""
