import type { Facts, FindingRecord } from '~/api/types'
import type { Series } from '~/panels/curves/series'
import { namesIn } from './where'

/** The columns of facts that are drawn, as `table.column`. */
export const COLUMNS = [
  'losses.value',
  'groups.rate',
  'groups.norm_backward',
  'groups.norm_update',
  'parameters.gradient_norm',
  'parameters.moved',
  'parameters.lost',
  'parameters.change',
  'parameters.norm',
  'steps.scale',
] as const

export type Column = (typeof COLUMNS)[number]

/** Curves that are drawn at a time. */
export const MOST_CURVES = 8
/** Curves that are drawn before the user chooses. */
const FEW_CURVES = 4

/** The facts that are drawn. */
export interface Choice {
  column: Column
  /** The items; null: the first ones. */
  names: string[] | null
}

/** Return the facts that show most of a finding; null if no curve shows it. */
export function choiceOf({ fact, where }: FindingRecord): Choice | null {
  const column = COLUMNS.find((column) => column === fact)
  if (column === undefined) return null
  const { names } = namesIn(where?.['parameter'] ?? '')
  return { column, names: tableOf(column) === 'parameters' && names.length > 0 ? names : null }
}

/** Return the table of a column. */
export function tableOf(column: Column): string {
  return column.slice(0, column.indexOf('.'))
}

/** Return the names of the items of a table, in the order of their appearance. */
export function itemsOf(facts: Facts): string[] {
  return [...new Set(facts.columns['name'] as string[] | undefined)]
}

/** Return the items that are drawn: those chosen that exist, else the first ones. */
export function drawnItems({ names }: Choice, items: readonly string[]): string[] {
  const chosen = (names ?? []).filter((name) => items.includes(name)).slice(0, MOST_CURVES)
  return chosen.length > 0 || names?.length === 0 ? chosen : items.slice(0, FEW_CURVES)
}

/** Return the curves of a column, one for each item; of several rows of an item in a step the last one counts. */
export function factSeries(facts: Facts, column: Column, items: readonly string[]): Series[] {
  const { columns } = facts
  const steps = (columns['step'] ?? []) as number[]
  const names = (columns['name'] ?? []) as string[]
  const values = (columns[column.slice(column.indexOf('.') + 1)] ?? []) as (number | null)[]
  return items.map((item) => {
    const points = new Map<number, number | null>()
    names.forEach((name, row) => {
      if (name === item) points.set(steps[row] ?? 0, values[row] ?? null)
    })
    // A number that is unknown and one that is not finite are both null here, so nothing is marked as NaN.
    return {
      key: item,
      name: item,
      kind: column,
      steps: [...points.keys()],
      values: [...points.values()],
      sick: [],
    }
  })
}
