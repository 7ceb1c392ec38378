import type { Wire } from './picture'

export type Direction = 'up' | 'down'

/** The boxes from which a box can be reached along the wires (`up`), or that can be reached from it (`down`); itself too. */
export function reach(wires: readonly Wire[], from: string, direction: Direction): ReadonlySet<string> {
  const next = new Map<string, string[]>()
  const lead = (here: string, there: string) => {
    const known = next.get(here)
    if (known) known.push(there)
    else next.set(here, [there])
  }
  for (const { source, target, back } of wires) {
    if (direction === 'down' || back > 0) lead(source, target)
    if (direction === 'up' || back > 0) lead(target, source)
  }
  const found = new Set([from])
  for (const box of found) for (const one of next.get(box) ?? []) found.add(one)
  return found
}
