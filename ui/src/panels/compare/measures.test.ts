import { expect, test } from 'vitest'
import { distanceOf, distanceText, errorText } from './measures'
import type { TensorDifference } from '~/api/types'

const difference = (fields: Partial<TensorDifference>) =>
  ({
    is_comparable: true,
    bit_equal: false,
    from_values: true,
    relative: 1.23e-4,
    ...fields,
  }) as TensorDifference
const reported = (fields: Partial<TensorDifference>) =>
  distanceText(distanceOf(difference(fields)), (key) => `(${key})`)

test('errors have two significant digits', () => {
  expect([0, 1.234e-7, 0.0234, 1.5, 23456, -0.5].map(errorText)).toEqual([
    '0',
    '1.2e-7',
    '0.023',
    '1.5',
    '2.3e+4',
    '-0.5',
  ])
})

test('a distance without a number says why', () => {
  expect(reported({})).toBe('1.2e-4')
  expect(reported({ from_values: false })).toBe('≥ 1.2e-4')
  expect(reported({ bit_equal: true, relative: 0 })).toBe('=')
  expect(reported({ relative: null })).toBe('NaN/Inf')
  expect(reported({ is_comparable: false, relative: null })).toBe('(shapes)')
  expect(distanceText(distanceOf(null), String)).toBe('–')
})
