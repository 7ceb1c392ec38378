import { pointsOf, type StatisticName } from '~/panels/inspector/history'
import { INFINITE, NAN } from '~/panels/overview/scale'
import type { Schemas, StatisticsRow } from '~/api/types'

/** A curve reported by the training. */
export type Curve = Schemas['Curve']

/** A curve in the chart. */
export interface Series {
  key: string
  name: string
  /** Curves of one kind share a scale. */
  kind: string
  steps: number[]
  /** Null where there is no finite number. */
  values: (number | null)[]
  /** Steps at which the value is NaN or infinite. */
  sick: { step: number; isNan: boolean }[]
}

/** A statistic of a tensor that the user has added. */
export interface AddedTensor {
  address: string
  statistic: StatisticName
}

const BEFORE_CLIPPING = 'gradient_norm_before_clipping'

/** Return the curves reported by a training; `nameOf` names a kind. */
export function seriesOf(
  curves: readonly Curve[],
  nameOf: (kind: string, index: number | null) => string,
): Series[] {
  const clips = curves.some(({ name }) => name === BEFORE_CLIPPING)
  return curves.map((curve) => {
    const several = curves.filter((other) => other.name === curve.name).length > 1
    const isClipped = clips && curve.name === 'gradient_norm'
    return {
      key: `${curve.name}.${curve.slot}`,
      name: nameOf(isClipped ? 'gradient_norm_after_clipping' : curve.name, several ? curve.slot + 1 : null),
      // Before and after clipping have one scale.
      kind: curve.name === BEFORE_CLIPPING ? 'gradient_norm' : curve.name,
      steps: curve.steps,
      values: curve.values,
      sick: curve.steps.flatMap((step, index) =>
        (curve.marks[index] ?? 0) & (NAN | INFINITE)
          ? [{ step, isNan: Boolean((curve.marks[index] ?? 0) & NAN) }]
          : [],
      ),
    }
  })
}

/** Return the curve of a statistic of a tensor. */
export function tensorSeries(
  { address, statistic }: AddedTensor,
  rows: readonly StatisticsRow[],
  name: string,
): Series {
  const points = pointsOf(rows, statistic)
  return {
    key: `${statistic} ${address}`,
    name,
    kind: statistic,
    steps: points.map(({ step }) => step),
    values: points.map(({ value }) => value),
    sick: points
      .filter(({ hasNan, hasInf }) => hasNan || hasInf)
      .map(({ step, hasNan }) => ({ step, isNan: hasNan })),
  }
}

/** Return the newest finite value of a curve; null if there is none. */
export function newest(series: Series): number | null {
  return series.values.findLast((value) => value !== null) ?? null
}

/** Return the step of any curve that is nearest to a position on the axis; null if there are no steps. */
export function nearestStep(series: readonly Series[], at: number): number | null {
  let nearest: number | null = null
  for (const { steps } of series) {
    for (const step of steps) {
      if (nearest === null || Math.abs(step - at) < Math.abs(nearest - at)) nearest = step
    }
  }
  return nearest
}
