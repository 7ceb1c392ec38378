import type { Action } from '~/state/actions'

/** The actions of which every word asked for is in the label, those that can be done first. */
export function foundActions(actions: Action[], query: string): Action[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean)
  return actions
    .filter((one) => words.every((word) => `${one.group} ${one.label}`.toLowerCase().includes(word)))
    .sort((a, b) => Number(a.disabled !== undefined) - Number(b.disabled !== undefined))
}

/** A tensor address that was pasted, without its step; null if it is none. */
export function pastedAddress(query: string): string | null {
  const match = /^(\d+\/[^/]+\/.+:(?:input\.|output\.)?\d+)(?:@\d+)?$/.exec(query.trim())
  return match?.[1] ?? null
}
