import { expect, test } from 'vitest'
import { gapsOf } from './gaps'

test('a gap is much longer than the usual distance of two values', () => {
  const steps = [1, 2, 3, 4, 130, 131, 132]
  expect(gapsOf(steps)(4, 130)).toBe(true)
  expect(gapsOf(steps)(3, 4)).toBe(false)
  const seldom = [0, 7, 15, 21, 29, 36, 162, 170]
  expect(gapsOf(seldom)(29, 36)).toBe(false)
  expect(gapsOf(seldom)(36, 162)).toBe(true)
  expect(gapsOf([])(1, 2)).toBe(false)
})
