/**
 * Query keys. Those of a session start with ['session', id] and a word for what makes them stale, so that an event
 * invalidates only the affected queries (`changes.ts`): 'record' is the session, 'graphs' changes with a new graph
 * only, 'step' with the step, 'watchpoints' with edits of watchpoints and with checks (ticks, marks of hits), 'hits'
 * with checks, 'findings' with what rules find.
 */
export const keys = {
  server: ['server'] as const,
  sessions: ['sessions'] as const,
  dumps: ['dumps'] as const,
  searches: ['searches'] as const,
  searched: (name: string) => ['searches', name] as const,
  comparisonOf: (a: string, b: string) => ['comparison of', a, b] as const,
  comparison: (id: string, ...more: unknown[]) => ['comparison', id, ...more] as const,
  session: (id: string) => ['session', id] as const,
  record: (id: string) => ['session', id, 'record'] as const,
  progress: (id: string) => ['session', id, 'progress'] as const,
  graphs: (id: string, ...more: unknown[]) => ['session', id, 'graphs', ...more] as const,
  step: (id: string, ...more: unknown[]) => ['session', id, 'step', ...more] as const,
  watchpoints: (id: string, ...more: unknown[]) => ['session', id, 'watchpoints', ...more] as const,
  hits: (id: string, ...more: unknown[]) => ['session', id, 'hits', ...more] as const,
  findings: (id: string, ...more: unknown[]) => ['session', id, 'findings', ...more] as const,
}

/** Return the API path of a session. */
export const path = (id: string, rest = '') => `sessions/${encodeURIComponent(id)}${rest}`
