import { expect, test } from 'vitest'
import { PALETTES } from '~/panels/tensor/palette'
import { cellColour, INFINITE, HIT, NAN, NOTHING, scaleOf, shareOf, ZERO } from './scale'

test('magnitudes are coloured on a logarithmic scale, and those beyond its ends as its ends', () => {
  const scale = scaleOf({ statistic: 'abs_mean', scale: { low: 0.01, high: 100, is_cut: true } })
  expect(scale).toEqual({ kind: 'magnitude', low: 0.01, high: 100, isCut: true })
  expect(shareOf(1e30, scale)).toBe(1)
  expect(shareOf(scale.low / 100, scale)).toBe(0)
  expect(shareOf(Math.sqrt(scale.low * scale.high), scale)).toBeCloseTo(0.5)
})

test('signed values keep their sign, and the smallest differs from zero', () => {
  const scale = scaleOf({ statistic: 'mean', scale: { low: 0.001, high: 10, is_cut: false } })
  expect(Math.sign(shareOf(-0.001, scale))).toBe(-1)
  expect(Math.abs(shareOf(-1e-9, scale))).toBeGreaterThan(0)
  expect(shareOf(0, scale)).toBe(0)
  expect(shareOf(10, scale)).toBe(1)
})

test('percentages go from 0 to 100, and there is a scale without any value', () => {
  const percent = scaleOf({ statistic: 'zero_percent', scale: null })
  expect(percent).toEqual({ kind: 'percent', low: 0, high: 100, isCut: false })
  expect(shareOf(25, percent)).toBe(0.25)
  const { low, high } = scaleOf({ statistic: 'std', scale: null })
  expect(low).toBeGreaterThan(0)
  expect(high).toBeGreaterThan(low)
})

test('non-finite, zero and missing values have separate colours', () => {
  const scale = scaleOf({ statistic: 'abs_mean', scale: { low: 1, high: 2, is_cut: false } })
  expect(cellColour(1, NAN | INFINITE, scale, 'dark')).toEqual(PALETTES.dark.nan)
  expect(cellColour(null, INFINITE | HIT, scale, 'light')).toEqual(PALETTES.light.infinite)
  expect(cellColour(0, 0, scale, 'light')).toEqual(ZERO.light)
  expect(cellColour(null, NOTHING | HIT, scale, 'light')).toBeNull()
})
