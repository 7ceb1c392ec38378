import type { Origin, Overview, OverviewRow } from '~/api/types'
import type { Cell } from '~/parts/gridKeys'
import { columnOf } from './geometry'

/** The cell of the first anomaly. */
export interface Beginning extends Cell {
  /** The name of the node. */
  name: string
  step: number
  /** Address of the origin; empty if there is none. */
  address: string
  /** The origin is certain: the anomaly was not in the inputs, and cannot have begun in steps that were not seen. */
  isCertain: boolean
}

/** Return the first origin from the server that is in the picture, else the first marked tensor. */
export function beginningOf(data: Overview, origins: readonly Origin[]): Beginning | null {
  const positions = new Map(data.located.map((position) => [position.address, position]))
  for (const { address, step, certain, arrived, unseen } of origins) {
    const position = positions.get(address.slice(0, address.lastIndexOf('@')))
    const column = columnOf(data.steps, step)
    if (position && column >= 0)
      return {
        row: position.row,
        column,
        name: position.node,
        step,
        address,
        isCertain: certain && !arrived && !unseen,
      }
  }
  if (!data.first) return null
  const { row, node, step } = data.first
  return {
    row,
    column: columnOf(data.steps, step ?? -1),
    name: node,
    step: step ?? 0,
    address: '',
    isCertain: false,
  }
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
