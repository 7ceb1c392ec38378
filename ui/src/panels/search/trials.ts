import type { SearchResult, Trial } from '~/api/types'
import { short } from '~/parts/numbers'

const DECADES = 1e3

export type Order = { column: string; descending: boolean }

export function valueText(value: boolean | number | string | undefined): string {
  if (value === undefined) return ''
  return typeof value === 'number' ? short(value) : String(value)
}

/** Return the sort key of a trial in a column; undefined if it has no value there. */
function sortKey(trial: Trial, column: string, targets: readonly string[]): number | string | undefined {
  const [kind, ...rest] = column.split(':')
  const name = rest.join(':')
  if (kind === 'target') return trial.values[targets.indexOf(name)]
  if (kind === 'param') {
    const value = trial.params[name]
    return typeof value === 'boolean' ? String(value) : value
  }
  if (kind === 'state') return trial.state
  if (kind === 'duration') return trial.duration_s ?? undefined
  if (kind === 'remark') return remark(trial) || undefined
  return trial.number
}

/** Sort trials by a column; trials without a value there always come last. */
export function sorted(trials: readonly Trial[], order: Order, targets: readonly string[]): Trial[] {
  const sign = order.descending ? -1 : 1
  return [...trials].sort((first, second) => {
    const a = sortKey(first, order.column, targets)
    const b = sortKey(second, order.column, targets)
    if (a === undefined || b === undefined) return Number(a === undefined) - Number(b === undefined)
    if (a === b) return first.number - second.number
    return sign * (typeof a === 'number' && typeof b === 'number' ? a - b : String(a) < String(b) ? -1 : 1)
  })
}

/** Return why a trial ended, or the debugger's warnings. */
export function remark(trial: Trial): string {
  if (trial.reason) return trial.reason
  return [...new Set(trial.warnings.map(({ condition }) => condition))].join(', ')
}

/** Return the best value of a target so far for each complete trial, in the order of their numbers. */
export function bestSoFar(result: SearchResult, target: number): [number, number][] {
  const isBetter = (a: number, b: number) => (result.targets[target]?.goal === 'maximize' ? a > b : a < b)
  let best: number | undefined
  return result.trials.flatMap((trial) => {
    const value = trial.values[target]
    if (value === undefined) return []
    if (best === undefined || isBetter(value, best)) best = value
    return [[trial.number, best] as [number, number]]
  })
}

/** Whether positive values are so far apart that they need a logarithmic scale. */
export function isWide(values: readonly number[]): boolean {
  const low = Math.min(...values)
  return low > 0 && Math.max(...values) > DECADES * low
}

export interface Cause {
  /** Id of the condition, or another cause that ended trials. */
  condition: string
  isWarning: boolean
  trials: Trial[]
}

/** Return the causes that ended trials, then the warnings, each sorted by the number of trials. */
export function causes(trials: readonly Trial[]): Cause[] {
  const byKey = new Map<string, Cause>()
  const add = (condition: string, isWarning: boolean, trial: Trial) => {
    const key = `${String(isWarning)} ${condition}`
    const cause = byKey.get(key) ?? { condition, isWarning, trials: [] }
    if (!cause.trials.includes(trial)) cause.trials.push(trial)
    byKey.set(key, cause)
  }
  for (const trial of trials) {
    if (trial.illness) add(trial.illness.condition, false, trial)
    for (const { condition } of trial.warnings) add(condition, true, trial)
  }
  return [...byKey.values()].sort(
    (a, b) => Number(a.isWarning) - Number(b.isWarning) || b.trials.length - a.trials.length,
  )
}
