import { expect, it } from 'vitest'
import type { StatisticsRow } from '~/api/types'
import { pointsOf, segments } from './history'

const row = (step: number, statistics: object) =>
  ({
    step,
    statistics: { count: 8, nan_count: 0, pos_inf_count: 0, neg_inf_count: 0, unknown: [], ...statistics },
  }) as unknown as StatisticsRow

it('draws no line where a number is not known', () => {
  const rows = [
    row(1, { mean: 1 }),
    row(2, { mean: 2 }),
    row(3, { mean: null, nan_count: 8 }),
    row(4, { mean: 3 }),
    row(130, { mean: 4 }),
    row(131, { mean: 5 }),
  ]
  const points = pointsOf(rows, 'mean')
  expect(points[2]).toEqual({ step: 3, value: null, hasNan: true, hasInf: false })
  expect(segments(points).map((part) => part.map((point) => point.step))).toEqual([[1, 2], [4], [130, 131]])
})

it('treats a count that was not recorded as unknown, not as 0', () => {
  const rows = [row(1, { zero_count: 4 }), row(2, { zero_count: 0, unknown: ['zero_count'] })]
  expect(pointsOf(rows, 'zeros').map((point) => point.value)).toEqual([50, null])
})
