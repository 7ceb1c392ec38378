import type { Wire } from './picture'

export type Direction = 'up' | 'down'

/** Return a box and the boxes upstream (`up`) or downstream (`down`) of it along the wires. */
export function reach(wires: readonly Wire[], from: string, direction: Direction): ReadonlySet<string> {
  const next = new Map<string, string[]>()
  const lead = (here: string, there: string) => {
    const neighbours = next.get(here)
    if (neighbours) neighbours.push(there)
    else next.set(here, [there])
  }
  for (const { source, target, back } of wires) {
    if (direction === 'down' || back > 0) lead(source, target)
    if (direction === 'up' || back > 0) lead(target, source)
  }
  const boxes = new Set([from])
  for (const box of boxes) for (const neighbour of next.get(box) ?? []) boxes.add(neighbour)
  return boxes
}
