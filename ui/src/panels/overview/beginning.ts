import type { Origin, Overview, OverviewRow } from '~/api/types'
import type { Cell } from '~/parts/gridKeys'
import { columnOf } from './geometry'

/** The cell in which the trouble begins. */
export interface Beginning extends Cell {
  /** The name of the node. */
  name: string
  step: number
  /** Of the origin; empty where there is none. */
  address: string
  /** It is known to have begun there: it did not come in, nor may it have been before the first step that was seen. */
  isCertain: boolean
}

/** Where it began: the first origin that the server found, if it is in the picture; else the first marked tensor. */
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

/** What part of a step makes a tensor, as the scopes of both frameworks say. */
export function phaseOf({ node, type }: OverviewRow): Phase {
  if (type === 'Parameter') return 'parameters'
  if (/^Gradients(\/|$)/.test(node)) return 'gradients'
  return /^(Optimizer(\/|$)|Default\/optimizer)/.test(node) ? 'optimizer' : 'forward'
}

/** Stretches of rows of one phase. */
export function phasesOf(rows: readonly OverviewRow[]): { phase: Phase; first: number; last: number }[] {
  const found: { phase: Phase; first: number; last: number }[] = []
  rows.forEach((row, position) => {
    const phase = phaseOf(row)
    const before = found.at(-1)
    if (before?.phase === phase) before.last = position
    else found.push({ phase, first: position, last: position })
  })
  return found
}
