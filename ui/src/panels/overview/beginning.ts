import type { Origin, Overview, OverviewRow } from '~/api/types'
import type { Cell } from '~/parts/gridKeys'
import { columnOf } from './geometry'

/** The first anomaly of the rank, whatever part of it is shown. */
export interface Beginning {
  /** Its cell; null if it is not in the part that is shown. */
  cell: Cell | null
  /** The name of the node. */
  name: string
  step: number
  /** Address of the tensor at that step. */
  address: string
  /** The origin is certain: the anomaly was not in the inputs, and cannot have begun in steps that were not seen. */
  isCertain: boolean
}

/** Return the first origin from the server whose tensor is known, else the first marked tensor. */
export function beginningOf(data: Overview, origins: readonly Origin[]): Beginning | null {
  const positions = new Map(data.located.map((position) => [position.address, position]))
  const cellOf = (row: number | null, step: number) => {
    const column = columnOf(data.steps, step)
    return row === null || column < 0 ? null : { row, column }
  }
  for (const { address, step, certain, arrived, unseen } of origins) {
    const position = positions.get(address.slice(0, address.lastIndexOf('@')))
    if (position)
      return {
        cell: cellOf(position.row, step),
        name: position.node,
        step,
        address,
        isCertain: certain && !arrived && !unseen,
      }
  }
  if (!data.first) return null
  const { address, row, node } = data.first
  const step = data.first.step ?? 0
  return { cell: cellOf(row, step), name: node, step, address: `${address}@${step}`, isCertain: false }
}

export type Phase = 'forward' | 'gradients' | 'optimizer' | 'parameters'

/** Return the phase of the step that computes a tensor, by the scopes of both frameworks. */
export function phaseOf({ node, type }: OverviewRow): Phase {
  if (type === 'Parameter') return 'parameters'
  if (/^Gradients(\/|$)/.test(node)) return 'gradients'
  return /^(Optimizer(\/|$)|Default\/optimizer)/.test(node) ? 'optimizer' : 'forward'
}

/** Group consecutive rows by phase. */
export function phasesOf(rows: readonly OverviewRow[]): { phase: Phase; first: number; last: number }[] {
  const spans: { phase: Phase; first: number; last: number }[] = []
  rows.forEach((row, position) => {
    const phase = phaseOf(row)
    const before = spans.at(-1)
    if (before?.phase === phase) before.last = position
    else spans.push({ phase, first: position, last: position })
  })
  return spans
}
