import { MEASURES } from '~/api/statistics'
import { gapsOf } from '~/parts/gaps'
import type { Statistics, StatisticsRow } from '~/api/types'

export const STATISTICS = [...MEASURES, 'zeros', 'nan_count', 'inf_count'] as const
export type StatisticName = (typeof STATISTICS)[number]

/** A point of a curve; the value is null if it does not exist or was not recorded. */
export interface Point {
  step: number
  value: number | null
  hasNan: boolean
  hasInf: boolean
}

export function pointsOf(rows: readonly StatisticsRow[], statistic: StatisticName): Point[] {
  return rows.map(({ step, statistics }) => ({
    step,
    value: numberOf(statistics, statistic),
    hasNan: statistics.nan_count > 0,
    hasInf: statistics.pos_inf_count + statistics.neg_inf_count > 0,
  }))
}

function numberOf(statistics: Statistics, name: StatisticName): number | null {
  const isKnown = (count: string) => !statistics.unknown.includes(count)
  if (name === 'zeros') {
    return statistics.count > 0 && isKnown('zero_count')
      ? (100 * statistics.zero_count) / statistics.count
      : null
  }
  if (name === 'inf_count') {
    const isCounted = isKnown('pos_inf_count') && isKnown('neg_inf_count')
    return isCounted ? statistics.pos_inf_count + statistics.neg_inf_count : null
  }
  if (name === 'nan_count') return isKnown(name) ? statistics.nan_count : null
  return statistics[name] ?? null
}

/** Split points at gaps, so that no line is drawn across unknown values. */
export function segments(points: readonly Point[]): Point[][] {
  const isGap = gapsOf(points.map(({ step }) => step))
  const parts: Point[][] = []
  let last: Point[] = []
  for (const point of points) {
    if (point.value === null) {
      last = []
      continue
    }
    const before = last.at(-1)
    if (before && isGap(before.step, point.step)) last = []
    if (last.length === 0) parts.push(last)
    last.push(point)
  }
  return parts
}
