import type { ComparedOperator, TensorDifference } from '~/api/types'

/** Format a relative error with two significant digits. */
export function errorText(value: number): string {
  if (value === 0) return '0'
  const size = Math.abs(value)
  return size < 1e-2 || size >= 1e4 ? value.toExponential(1) : String(Number(value.toPrecision(2)))
}

/** Format a relative error; a dash if there is none. */
export function numberText(value: number | null | undefined): string {
  return value == null ? '–' : errorText(value)
}

/** The distance of two tensors: a number, or why there is none. */
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

/** Return the distance of an operator's worst output, which comes first. */
export function operatorDistance(operator: ComparedOperator): Distance {
  return distanceOf(operator.outputs[0])
}

/** Format a distance for a table cell. */
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
