/**
 * Keys of everything that is read. All that belongs to a session begins with ['session', id], so that an event can
 * have the right part of it read anew (`changes.ts`):
 * 'record' the session, 'graphs' what only a new graph changes, 'step' what another step changes, 'watchpoints' what
 * edits of watchpoints and checks change (ticks, marks of hits), 'hits' what a check changes.
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
}

/** Where a session is in the API. */
export const path = (id: string, rest = '') => `sessions/${encodeURIComponent(id)}${rest}`
