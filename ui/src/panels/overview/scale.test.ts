import { expect, test } from 'vitest'
import { PALETTES } from '~/panels/tensor/palette'
import { cellColour, HIT, INFINITE, NAN, NOTHING, scaleOf, shareOf, ZERO } from './scale'

test('magnitudes are coloured on a logarithmic scale, regardless of a few enormous ones', () => {
  const most = Array.from({ length: 200 }, (_, index) => 10 ** (-3 + index / 50))
  const scale = scaleOf('abs_mean', [most, [1e30, null, 0]])
  expect(scale.kind).toBe('magnitude')
  expect(scale.isCut).toBe(true)
  expect(scale.low).toBeLessThan(0.01)
  expect(scale.high).toBeLessThan(100)
  expect(shareOf(1e30, scale)).toBe(1)
  expect(shareOf(scale.low / 100, scale)).toBe(0)
  expect(shareOf(Math.sqrt(scale.low * scale.high), scale)).toBeCloseTo(0.5)
})

test('signed values keep their sign, and the smallest differs from zero', () => {
  const scale = scaleOf('mean', [[-1, -0.001, 0, 1, 10]])
  expect(Math.sign(shareOf(-0.001, scale))).toBe(-1)
  expect(Math.abs(shareOf(-1e-9, scale))).toBeGreaterThan(0)
  expect(shareOf(0, scale)).toBe(0)
  expect(shareOf(10, scale)).toBe(1)
})

test('percentages go from 0 to 100, and few or equal values have a scale as well', () => {
  expect(scaleOf('zero_percent', [[3]])).toEqual({ kind: 'percent', low: 0, high: 100, isCut: false })
  expect(shareOf(25, scaleOf('zero_percent', []))).toBe(0.25)
  for (const values of [[], [[null]], [[0, 0]], [[5, 5, 5]]]) {
    const { low, high } = scaleOf('std', values)
    expect(low).toBeGreaterThan(0)
    expect(high).toBeGreaterThan(low)
  }
})

test('non-finite, zero and missing values have separate colours', () => {
  const scale = scaleOf('abs_mean', [[1, 2]])
  expect(cellColour(1, NAN | INFINITE, scale, 'dark')).toEqual(PALETTES.dark.nan)
  expect(cellColour(null, INFINITE | HIT, scale, 'light')).toEqual(PALETTES.light.infinite)
  expect(cellColour(0, 0, scale, 'light')).toEqual(ZERO.light)
  expect(cellColour(null, NOTHING | HIT, scale, 'light')).toBeNull()
})
