import type { Action } from '~/state/actions'

/** Return the actions whose group and label contain every word of the query, available actions first. */
export function matchingActions(actions: Action[], query: string): Action[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean)
  return actions
    .filter((action) => words.every((word) => `${action.group} ${action.label}`.toLowerCase().includes(word)))
    .sort((a, b) => Number(a.disabled !== undefined) - Number(b.disabled !== undefined))
}

/** Return a pasted tensor address without its step; null if the query is not an address. */
export function pastedAddress(query: string): string | null {
  const match = /^(\d+\/[^/]+\/.+:(?:input\.|output\.)?\d+)(?:@\d+)?$/.exec(query.trim())
  return match?.[1] ?? null
}
