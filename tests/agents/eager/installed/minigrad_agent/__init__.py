"""The adapter for minigrad: `minigrad_agent.debugger.Debugger` debugs its trainings."""
