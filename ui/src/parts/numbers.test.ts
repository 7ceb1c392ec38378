import { expect, test } from 'vitest'
import { digitsBetween, short } from './numbers'

test.each([
  [4.16812, 4.16824],
  [-1000.0001, -1000.0002],
  [123456, 123457.5],
  [0, 1],
])('both ends of an axis from %f to %f read differently, and so does what is between them', (low, high) => {
  const [from, to] = [Math.min(low, high), Math.max(low, high)]
  const texts = [0, 0.25, 0.5, 0.75, 1].map((share) =>
    short(from + share * (to - from), digitsBetween(from, to)),
  )
  expect(new Set(texts).size).toBe(5)
})

test('an axis without a range has the digits of any number', () => {
  expect(digitsBetween(2, 2)).toBe(4)
  expect(short(2.00001, digitsBetween(2, 3))).toBe('2')
})
