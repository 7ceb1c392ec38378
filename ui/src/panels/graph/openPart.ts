import { create } from 'zustand'

/** What is open of one graph. */
export interface OpenPart {
  scopes: readonly string[]
  clusters: readonly string[]
}

const CLOSED: OpenPart = { scopes: [], clusters: [] }

/** The server takes no more, and a picture with more cannot be taken in. */
export const MOST_OPEN = 300

interface OpenParts {
  parts: Record<string, OpenPart>
  parameters: boolean
  constants: boolean
  set: (graph: string, part: OpenPart) => void
  show: (change: { parameters?: boolean; constants?: boolean }) => void
}

/** Kept while the page is open, so that a person who comes back to a graph finds it as it was left. */
export const useOpenParts = create<OpenParts>()((set) => ({
  parts: {},
  parameters: true,
  constants: false,
  set: (graph, part) => set((state) => ({ parts: { ...state.parts, [graph]: part } })),
  show: (change) => set(change),
}))

export function openPart(graph: string): OpenPart {
  return useOpenParts.getState().parts[graph] ?? CLOSED
}

export function useOpenPart(graph: string): OpenPart {
  return useOpenParts((state) => state.parts[graph] ?? CLOSED)
}

/** With these scopes open, too; those that were opened first are closed when there are too many. */
export function withOpen(
  part: OpenPart,
  scopes: readonly string[],
  clusters: readonly string[] = [],
): OpenPart {
  return {
    scopes: [...new Set([...part.scopes, ...scopes])].slice(-MOST_OPEN),
    clusters: [...new Set([...part.clusters, ...clusters])],
  }
}

/** With a scope or cluster closed, and everything in it. */
export function withClosed(part: OpenPart, path: string): OpenPart {
  const isInside = (one: string) => one === path || one.startsWith(`${path}/`)
  return {
    scopes: part.scopes.filter((one) => !isInside(one)),
    clusters: part.clusters.filter((one) => !isInside(one)),
  }
}

/** The scopes around a name, the outermost first: `a/b/c` lies in `a` and `a/b`. */
export function scopesAround(scope: string): string[] {
  const names = scope === '' ? [] : scope.split('/')
  return names.map((_, number) => names.slice(0, number + 1).join('/'))
}
