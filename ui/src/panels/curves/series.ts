import { pointsOf, type StatisticName } from '~/panels/inspector/history'
import { INFINITE, NAN } from '~/panels/overview/scale'
import type { Schemas, StatisticsRow } from '~/api/types'

/** What the training tells by itself. */
export type Curve = Schemas['Curve']

/** A curve as it is drawn. */
export interface Series {
  key: string
  name: string
  /** Curves of one kind share a scale. */
  kind: string
  steps: number[]
  /** null where there is no finite number. */
  values: (number | null)[]
  /** Steps at which it is NaN or infinite. */
  sick: { step: number; isNan: boolean }[]
}

/** A statistic of a tensor that a person has added. */
export interface AddedTensor {
  address: string
  statistic: StatisticName
}

/** The curves that a training tells by itself; `nameOf` gives a kind its name. */
export function seriesOf(
  curves: readonly Curve[],
  nameOf: (kind: string, index: number | null) => string,
): Series[] {
  return curves.map((curve) => {
    const several = curves.filter((one) => one.name === curve.name).length > 1
    return {
      key: `${curve.name}.${curve.slot}`,
      name: nameOf(curve.name, several ? curve.slot + 1 : null),
      kind: curve.name,
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

/** The curve of a statistic of a tensor. */
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

/** The newest number of a curve that is one; null if there is none. */
export function newest(series: Series): number | null {
  return series.values.findLast((value) => value !== null) ?? null
}

/** The step of any of the curves that is nearest to a position on the axis; null if there is none. */
export function nearestStep(series: readonly Series[], at: number): number | null {
  let nearest: number | null = null
  for (const { steps } of series) {
    for (const step of steps) {
      if (nearest === null || Math.abs(step - at) < Math.abs(nearest - at)) nearest = step
    }
  }
  return nearest
}
