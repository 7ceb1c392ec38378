import type { Wire } from './picture'

export type Direction = 'up' | 'down'

/** The boxes from which a box can be reached along the wires (`up`), or that can be reached from it (`down`); itself too. */
export function reach(wires: readonly Wire[], from: string, direction: Direction): ReadonlySet<string> {
  const next = new Map<string, string[]>()
  for (const { source, target } of wires) {
    const [here, there] = direction === 'down' ? [source, target] : [target, source]
    const known = next.get(here)
    if (known) known.push(there)
    else next.set(here, [there])
  }
  const found = new Set([from])
  for (const box of found) for (const one of next.get(box) ?? []) found.add(one)
  return found
}
