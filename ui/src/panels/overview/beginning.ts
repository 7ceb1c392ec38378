import type { Origin, Overview, OverviewRow } from '~/api/types'
import { parseAddress } from '~/parts/tensorAddress'
import { columnOf, type Cell } from './geometry'
import { HIT, INFINITE, NAN } from './scale'

/** The cell in which the trouble begins. */
export interface Beginning extends Cell {
  /** The name of the node. */
  name: string
  step: number
  /** Of the origin; empty where there is none. */
  address: string
  /** It was found by looking at what went into each operator, not only by what comes first. */
  isOrigin: boolean
}

const SICK = NAN | INFINITE

/** Where it began: the first origin that the server found, if it is in the picture; else the first marked cell. */
export function beginningOf(data: Overview, origins: readonly Origin[]): Beginning | null {
  const marked = firstMarked(data, HIT) ?? firstMarked(data, SICK)
  for (const origin of origins) {
    const column = columnOf(data.steps, origin.step)
    const own = rowOf(data, origin.address)
    // Merged with its neighbours, it is in the first row that is marked at its step.
    const row = own < 0 && marked?.column === column ? marked.row : own
    if (column >= 0 && row >= 0) {
      const name = parseAddress(origin.address)?.node ?? origin.node
      return { row, column, name, step: origin.step, address: origin.address, isOrigin: true }
    }
  }
  return marked
}

/** In the first column with such a mark the first cell that is not finite, or else that has the mark. */
function firstMarked(data: Overview, mark: number): Beginning | null {
  const has = (row: number, column: number, bits: number) => ((data.marks[row]?.[column] ?? 0) & bits) !== 0
  for (let column = 0; column < data.steps.length; column += 1) {
    const first = data.rows.findIndex((_, row) => has(row, column, mark))
    if (first < 0) continue
    const sick = data.rows.findIndex((_, row) => has(row, column, SICK))
    const row = sick >= 0 ? sick : first
    const [name, step] = [data.rows[row]?.node ?? '', data.steps[column]?.first ?? 0]
    return { row, column, name, step, address: '', isOrigin: false }
  }
  return null
}

/** The row that shows a tensor: its own, or that of the neighbours it was merged with; −1 if it is not known. */
export function rowOf(data: Overview, address: string): number {
  const wanted = parseAddress(address)
  if (!wanted) return -1
  return data.rows.findIndex(
    (row) =>
      row.tensors === 1 && row.node === wanted.node && row.slot === wanted.slot && row.io === wanted.io,
  )
}

export type Phase = 'forward' | 'gradients' | 'optimizer' | 'parameters'

/** What part of a step makes a tensor, as the scopes of both frameworks say. */
export function phaseOf({ node, type }: OverviewRow): Phase {
  if (type === 'Parameter') return 'parameters'
  if (/^Gradients(\/|$)/.test(node)) return 'gradients'
  return /^(Optimizer(\/|$)|Default\/optimizer)/.test(node) ? 'optimizer' : 'forward'
}

/** Stretches of rows of one phase. */
export function phasesOf(rows: readonly OverviewRow[]): { phase: Phase; first: number; last: number }[] {
  const found: { phase: Phase; first: number; last: number }[] = []
  rows.forEach((row, place) => {
    const phase = phaseOf(row)
    const before = found.at(-1)
    if (before?.phase === phase) before.last = place
    else found.push({ phase, first: place, last: place })
  })
  return found
}
