import type { ComparedOperator, TensorDifference } from '~/api/types'

/** A relative error in as few digits as people compare. */
export function errorText(value: number): string {
  if (value === 0) return '0'
  const size = Math.abs(value)
  return size < 1e-2 || size >= 1e4 ? value.toExponential(1) : String(Number(value.toPrecision(2)))
}

/** The same, and a dash where there is none. */
export function numberText(value: number | null | undefined): string {
  return value == null ? '–' : errorText(value)
}

/** How far two tensors are apart: a number, or why there is none. */
export type Distance =
  | { kind: 'unknown' }
  | { kind: 'shapes' }
  | { kind: 'same' }
  | { kind: 'beyond' }
  | { kind: 'number'; value: number; isLowerBound: boolean }

export function distanceOf(difference: TensorDifference | undefined | null): Distance {
  if (!difference) return { kind: 'unknown' }
  if (!difference.is_comparable) return { kind: 'shapes' }
  if (difference.bit_equal) return { kind: 'same' }
  if (difference.relative == null) return { kind: 'beyond' }
  return { kind: 'number', value: difference.relative, isLowerBound: !difference.from_values }
}

/** How far the outputs of an operator are apart: those of its worst output, which comes first. */
export function operatorDistance(operator: ComparedOperator): Distance {
  return distanceOf(operator.outputs[0])
}

/** The distance in a cell of a table. */
export function distanceText(distance: Distance, t: (key: string) => string): string {
  switch (distance.kind) {
    case 'unknown':
      return '–'
    case 'shapes':
      return t('shapes')
    case 'same':
      return '='
    case 'beyond':
      return 'NaN/Inf'
    case 'number':
      return `${distance.isLowerBound ? '≥ ' : ''}${errorText(distance.value)}`
  }
}
