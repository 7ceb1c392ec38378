import { create } from 'zustand'

/** The open scopes and clusters of one graph. */
export interface OpenPart {
  scopes: readonly string[]
  clusters: readonly string[]
}

const CLOSED: OpenPart = { scopes: [], clusters: [] }

/** The server accepts no more, and a picture with more is unreadable. */
export const MOST_OPEN = 300

interface OpenParts {
  parts: Record<string, OpenPart>
  parameters: boolean
  constants: boolean
  set: (graph: string, part: OpenPart) => void
  show: (change: { parameters?: boolean; constants?: boolean }) => void
}

/** Kept while the page is open, so that a user who returns to a graph finds it as before. */
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

/** Open further scopes and clusters; the scopes opened first are closed if there are too many. */
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

/** Close a scope or cluster, and everything in it. */
export function withClosed(part: OpenPart, path: string): OpenPart {
  const isInside = (name: string) => name === path || name.startsWith(`${path}/`)
  return {
    scopes: part.scopes.filter((scope) => !isInside(scope)),
    clusters: part.clusters.filter((cluster) => !isInside(cluster)),
  }
}

/** Return a scope and the scopes around it, outermost first: `a`, `a/b`, `a/b/c` for `a/b/c`. */
export function scopesAround(scope: string): string[] {
  const names = scope === '' ? [] : scope.split('/')
  return names.map((_, number) => names.slice(0, number + 1).join('/'))
}
