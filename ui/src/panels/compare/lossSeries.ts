import type { Series } from '~/panels/curves/series'
import type { ComparedLosses } from '~/api/types'

/** Return the losses of both runs as curves; a step without a number is marked as NaN or Inf. */
export function lossSeries(points: ComparedLosses['points'], titles: readonly [string, string]): Series[] {
  return (['a', 'b'] as const).map((side, index) => ({
    key: side,
    name: `${side.toUpperCase()}  ${titles[index] ?? ''}`,
    kind: 'loss',
    steps: points.map(({ step }) => step),
    values: points.map((point) => point[side] ?? null),
    sick: points.filter((point) => point[side] == null).map(({ step }) => ({ step, isNan: true })),
  }))
}
